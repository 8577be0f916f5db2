"""Sinusoidal and rotary positions, exact to float32 at any position.

`float32(position) * frequency` is off by 6e-2 radians at position 1e6. Here frequencies are
float64 NumPy constants in turns. They are multiplied by the integer position in 64-bit fixed
point, where whole turns drop out by overflow. Only the fraction of a turn becomes a float.
"""

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import (
    Array,
    as_array,
    check_array,
    check_choice,
    check_dtype,
    check_leading,
    check_size,
    is_int,
    is_symbolic,
    static_number,
)
from jaxformer.functional.dtypes import widened
from jaxformer.functional.masks.tiles import to_rank
from jaxformer.functional.positions.scaling import RotaryScaling, scale_frequencies


def sinusoidal_positions(
    positions: int | Array, d_model: int, *, base: float = 10_000.0, layout: str = "interleaved"
) -> jax.Array:
    r"""Sinusoidal position embeddings: sines and cosines of geometrically spaced frequencies.

    $$PE_{p,2i} = \sin(p / base^{2i/d}), \quad PE_{p,2i+1} = \cos(p / base^{2i/d})$$

    Args:
        positions: a length (positions 0 .. length-1), or an integer array `[...]`, which may be
            traced and may be negative.
        d_model: D; if odd, there is one more sine than cosines.
        base: wavelengths range from 2 pi to about 2 pi * base.
        layout: "interleaved" (sine, cosine, sine, ...; Vaswani et al.) or "half" (all sines, then
            all cosines; Marian).

    Returns:
        float32 `[..., D]`, within 5e-7 of float64 arithmetic up to position 1e6; float64 with
        jax_enable_x64.

    Raises:
        ShapeError: a length or width is negative, or positions are not integers.
        ConfigError: the layout is unknown, or the base is invalid.

    References:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.5.

    Example:
        >>> [round(float(x), 3) for x in sinusoidal_positions(2, 4)[1]]
        [0.841, 0.54, 0.01, 1.0]
    """
    check_choice("layout", layout, ("interleaved", "half"))
    d_model = check_size("d_model", d_model)
    sine, cosine = _sine_cosine(_as_positions(positions), _frequencies(base, d_model))
    # If D is odd, the last cosine is left out.
    if layout == "half":
        return jnp.concatenate([sine, cosine], axis=-1)[..., :d_model]
    pairs = jnp.stack([sine, cosine], axis=-1)  # [..., I, 2]
    return rearrange(pairs, "... i two -> ... (i two)")[..., :d_model]


def rotary_tables(
    positions: int | Array, head_dim: int, *, base: float = 10_000.0,
    scaling: RotaryScaling | None = None,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    r"""Cosines and sines of rotary positions, for `apply_rotary`: angle $p / base^{2i/H}$.

    Args:
        positions: as in `sinusoidal_positions`.
        head_dim: H, even.
        base: wavelengths range from 2 pi to about 2 pi * base.
        scaling: a `LinearScaling`, `Llama3Scaling`, `YarnScaling` or `LongropeScaling`; None = no
            scaling. Static under jit.

    Returns:
        (cos, sin): `[..., H/2]` each, times the attention factor of the scaling; dtype and accuracy
        (times that factor) are those of `sinusoidal_positions`.

    Raises:
        ShapeError: head_dim is odd, or positions are not integers.
        ConfigError: the base or the scaling is invalid.

    References:
        Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021. For
        scaling, see each class.

    Example:
        >>> cos, sin = rotary_tables(3, 4)
        >>> cos.shape
        (3, 2)
    """
    head_dim = check_size("head_dim", head_dim)
    if head_dim % 2:
        raise ShapeError(f"head_dim must be even and positive, got {head_dim}")
    frequencies, attention_factor = scale_frequencies(_frequencies(base, head_dim), base, scaling)
    sine, cosine = _sine_cosine(_as_positions(positions), frequencies)  # [..., H/2]
    factor = jnp.asarray(attention_factor, sine.dtype)
    return cosine * factor, sine * factor


def apply_rotary(
    x: jax.Array, tables: tuple[jax.Array, jax.Array], *, layout: str, rotary_dim: int | None = None
) -> jax.Array:
    """Rotary position embedding: rotates pairs of features by an angle that grows with position.

    The dot product of a rotated query and key depends only on the difference of their positions.

    Args:
        x: float `[..., T, N, H]`.
        tables: (cos, sin) from `rotary_tables`, `[T, R/2]` or `[..., T, R/2]`, R = rotary_dim.
        layout: "half" pairs feature i with i + R/2 (GPT-NeoX, Hugging Face's Llama weights);
            "interleaved" pairs 2i with 2i + 1 (the paper, Meta's Llama weights).
        rotary_dim: R, even: rotates only the first R features; H when not given.

    Returns:
        The rotated x, in its shape and dtype; computed in float32 (float64 for float64).

    Raises:
        ShapeError: the tables do not fit x, or rotary_dim is odd or more than H.
        ConfigError: the layout is unknown.

    References:
        Su et al., "RoFormer", 2021; Black et al., "GPT-NeoX-20B", 2022 (partial rotation).

    Example:
        >>> x = jnp.ones((3, 1, 4))
        >>> apply_rotary(x, rotary_tables(3, 4), layout="half").shape
        (3, 1, 4)
    """
    check_choice("layout", layout, ("half", "interleaved"))
    sizes = check_array("x", x, "floating", "... T N H")
    got = len(tables) if isinstance(tables, tuple | list) else type(tables).__name__
    if got != 2:
        raise ShapeError(f"tables must be the pair of arrays (cos, sin), got {got}")
    if rotary_dim is not None:
        rotary_dim = check_size("rotary_dim", rotary_dim)
        if rotary_dim % 2 or rotary_dim > sizes["H"]:
            raise ShapeError(
                f"rotary_dim must be even and at most H, got rotary_dim={rotary_dim} and x of "
                f"shape {x.shape}"
            )
        if rotary_dim < sizes["H"]:
            rotated = apply_rotary(x[..., :rotary_dim], tables, layout=layout)
            return jnp.concatenate([rotated, x[..., rotary_dim:]], axis=-1)
    if sizes["H"] % 2:
        raise ShapeError(f"x must be [..., T, N, H] with an even H, got shape {x.shape}")
    wide = widened(x)
    cosine, sine = (  # [..., T, 1, H/2]
        _broadcast_over_heads(name, table, wide, {"T": sizes["T"], "H/2": sizes["H"] // 2})
        for name, table in zip(("cos", "sin"), tables, strict=True)
    )
    split, join = {
        "half": ("... (two i) -> two ... i", "two ... i -> ... (two i)"),
        "interleaved": ("... (i two) -> two ... i", "two ... i -> ... (i two)"),
    }[layout]
    first, second = rearrange(wide, split, two=2)  # [..., T, N, H/2]
    rotated = jnp.stack([first * cosine - second * sine, second * cosine + first * sine])
    return rearrange(rotated, join).astype(x.dtype)


def _broadcast_over_heads(
    name: str, table: jax.Array, x: jax.Array, sizes: dict[str, int]
) -> jax.Array:
    """Expands a table `[..., T, H/2]` to the rank of x, with size 1 for the heads."""
    remedy = "x is [..., T, N, H]"
    check_array(f"tables ({name})", table, "floating", "... T H/2", sizes, remedy=remedy)
    if table.ndim != 2:
        check_leading(f"tables ({name})", table, 2, x.shape[:-3], of="x")
    return to_rank(rearrange(table, "... t i -> ... t 1 i").astype(x.dtype), x.ndim)


def _as_positions(positions: int | Array) -> jax.Array:
    if is_int(positions) or is_symbolic(positions):
        return jnp.arange(check_size("positions", positions, least=0), dtype=jnp.int32)
    positions = as_array("positions", positions)
    check_dtype("positions", positions, "integer", remedy="positions are whole tokens")
    return positions.astype(jnp.int32) if positions.dtype.itemsize < 4 else positions


def _frequencies(base: float, width: int) -> np.ndarray:
    """Angular frequency base ** (-2 i / width) of each pair i of features, radians per position."""
    exponents = np.arange(0, width, 2, dtype=np.float64) / width
    return np.power(np.float64(static_number("base", base, positive=True)), -exponents)


def _sine_cosine(positions: jax.Array, frequencies: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Sine and cosine of integer position times frequency, `[..., F]`."""
    if jnp.result_type(float) == jnp.float64:  # with jax_enable_x64
        angle = jnp.einsum("...,f->...f", positions.astype(jnp.float64), frequencies)
        return jnp.sin(angle), jnp.cos(angle)
    # Turns per position in 64-bit fixed point: an integer t stands for t / 2**64 of a turn. Its
    # product with a position overflows by whole turns, which change neither sine nor cosine.
    turns = np.ldexp(frequencies / (2 * np.pi) % 1.0, 64).astype(np.uint64)
    turns = np.expand_dims(turns, tuple(range(positions.ndim)))  # [..., F]
    high, low = (turns >> np.uint64(32)).astype(np.uint32), turns.astype(np.uint32)
    magnitude = jnp.abs(positions)[..., None].astype(jnp.uint32)  # the sign is restored below
    # The upper half of the 64-bit product, modulo 2**32: the fraction of a turn.
    phase = magnitude * high + _multiply_high(magnitude, low)
    phase = jnp.where(positions[..., None] < 0, jnp.uint32(0) - phase, phase)
    # Reduce to the nearest quarter turn: an angle of at most pi/4 rounds finely.
    quarter = (phase + jnp.uint32(1 << 29)) >> 30
    remainder = jax.lax.bitcast_convert_type(phase - (quarter << 30), jnp.int32)
    angle = remainder.astype(jnp.float32) * np.float32(2 * np.pi / 2**32)
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    # Each quarter turn takes (sine, cosine) to (cosine, -sine).
    quarter = quarter & 3
    is_odd = (quarter & 1) == 1
    sine, cosine = jnp.where(is_odd, cosine, sine), jnp.where(is_odd, sine, cosine)
    cosine_is_negative = (quarter == 1) | (quarter == 2)
    return jnp.where(quarter >= 2, -sine, sine), jnp.where(cosine_is_negative, -cosine, cosine)


def _multiply_high(a: jax.Array, b: Array) -> jax.Array:
    """Upper 32 bits of the 64-bit product of two uint32 arrays, by 16-bit halves."""
    mask = jnp.uint32(0xFFFF)
    a_high, a_low, b_high, b_low = a >> 16, a & mask, b >> 16, b & mask
    middle = a_high * b_low + ((a_low * b_low) >> 16)
    carry = (middle & mask) + a_low * b_high
    return a_high * b_high + (middle >> 16) + (carry >> 16)
