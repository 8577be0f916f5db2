import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer.functional import apply_rotary, rotary_tables, sinusoidal_positions


def reference_angles(positions, width, base):
    """Angles in float64: `[..., ceil(width / 2)]`."""
    frequencies = np.float64(base) ** (-np.arange(0, width, 2) / width)
    return np.asarray(positions, np.float64)[..., None] * frequencies


def reference_encoding(positions, width, base=10_000.0, layout="interleaved"):
    angles = reference_angles(positions, width, base)
    sine, cosine = np.sin(angles), np.cos(angles)[..., : width // 2]
    if layout == "half":
        return np.concatenate([sine, cosine], axis=-1)
    result = np.empty((*np.shape(positions), width))
    result[..., 0::2], result[..., 1::2] = sine, cosine
    return result


def assert_close(got, expected, tolerance):
    chex.assert_trees_all_close(got, expected, rtol=0, atol=tolerance)


def random_positions(seed, largest=1_000_000, shape=(211,)):
    return np.random.default_rng(seed).integers(-largest, largest, shape, endpoint=True)


# Positions are traced; each choice of the other arguments compiles once.
encode = jax.jit(sinusoidal_positions, static_argnums=1, static_argnames=("base", "layout"))
tables_of = jax.jit(rotary_tables, static_argnums=1, static_argnames="base")
rotate = jax.jit(apply_rotary, static_argnames="layout")


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    options=st.sampled_from(
        [(1, 1e4, "half"), (6, 1e4, "half"), (7, 12_345.678, "interleaved"), (7, 1.5, "half")]
    ),
)
def test_sinusoidal_is_exact_to_float32_up_to_a_million(seed, options):
    width, base, layout = options
    positions = random_positions(seed)
    encoding = encode(positions, width, base=base, layout=layout)
    assert encoding.dtype == jnp.float32
    expected = reference_encoding(positions, width, base, layout)
    assert_close(encoding, expected, 5e-7)


def test_sinusoidal_is_exact_around_quarter_turns():
    # The base makes the second wavelength 44 positions to within 1e-8: phases fall on multiples
    # of a quarter turn, where the reduction picks another quadrant.
    base = (44 / (2 * math.pi)) ** 2
    positions = np.arange(-88, 89)
    encoding = encode(positions, 4, base=base)
    expected = reference_encoding(positions, 4, base)
    assert_close(encoding, expected, 2e-7)


def test_sinusoidal_keeps_its_phase_at_the_largest_positions():
    # The float64 reference itself is only good to 2**31 * 2**-53 = 2.4e-7 here.
    positions = np.array([2**31 - 1, -(2**31 - 1), -(2**31), 2**31 - 2, 1_999_999_973])
    encoding = encode(positions, 7)
    assert_close(encoding, reference_encoding(positions, 7), 1.5e-6)


def test_positions_of_a_length_count_from_zero():
    encoding, (cos, sin), empty = jax.jit(
        lambda: (sinusoidal_positions(5, 7), rotary_tables(5, 6), sinusoidal_positions(0, 7))
    )()
    assert_close(encoding, reference_encoding(range(5), 7), 2e-7)
    angles = reference_angles(range(5), 6, 1e4)
    assert_close(cos, np.cos(angles), 2e-7)
    assert_close(sin, np.sin(angles), 2e-7)
    assert empty.shape == (0, 7)


@pytest.mark.parametrize(
    ("positions", "tolerance"),
    [
        (random_positions(1, shape=(2, 3, 5)), 5e-7),
        (np.int32(-7), 5e-7),
        (np.array([-128, 127, 3, -3], np.int8), 5e-7),
        (np.array([2**31, 2**31 + 5, 2**32 - 1], np.uint32), 2e-6),
    ],
    ids=["leading axes", "scalar", "int8", "uint32"],
)
def test_positions_may_be_integers_of_any_shape_and_dtype(positions, tolerance):
    """Also traced, mapped, or of 64 bits, with tables of float64."""
    positions = jnp.asarray(positions)
    encoding, tables = encode(positions, 7), tables_of(positions, 14)
    assert_close(encoding, reference_encoding(positions, 7), tolerance)
    assert_close(tables[1], np.sin(reference_angles(positions, 14, 1e4)), tolerance)
    assert_close(sinusoidal_positions(positions, 7), encoding, 2e-7)
    if positions.ndim:
        mapped = jax.jit(jax.vmap(lambda p: sinusoidal_positions(p, 7)))(positions)
        assert_close(mapped, encoding, 2e-7)
    with jax.enable_x64(True):
        wide = jnp.asarray(np.asarray(positions).astype(np.int64))
        assert_close(encode(wide, 7), encoding, tolerance)
        assert_close(tables_of(wide, 14)[1], tables[1], tolerance)


def test_positions_beyond_32_bits_keep_their_phase():
    beyond = np.array([2**33 + 3, -(2**33) - 3])
    with jax.enable_x64(True):
        assert_close(encode(jnp.asarray(beyond), 7), reference_encoding(beyond, 7), 1e-5)
        large = jnp.asarray(np.array([2**32 - 1], np.uint64))
        assert_close(encode(large, 7), reference_encoding([2**32 - 1], 7), 2e-6)


def test_tables_of_float64_are_exact_to_float64():
    positions = np.array([0, 1, 7, 1000, -3, 10**6])
    with jax.enable_x64(True):
        cosine, sine = rotary_tables(positions, 6)
        encoding = sinusoidal_positions(positions, 7)
    angles = positions[:, None] * 10_000.0 ** (-np.arange(0, 6, 2) / 6)
    assert_close(cosine, np.cos(angles), 1e-9)
    assert_close(sine, np.sin(angles), 1e-9)
    assert_close(encoding, reference_encoding(positions, 7), 1e-9)


def random_heads(seed, shape):
    return np.random.default_rng(seed).standard_normal(shape)


def split_pairs(x, layout):
    x = np.asarray(x, np.float64)
    if layout == "half":
        return np.split(x, 2, axis=-1)
    return x[..., 0::2], x[..., 1::2]


# [..., T, N, H] of every test, so that each layout compiles once.
HEADS = random_heads(4, (2, 5, 3, 14))


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_rotary_multiplies_complex_numbers(layout):
    positions = random_positions(4, 1000, (5,))
    rotated = rotate(jnp.asarray(HEADS, jnp.float32), tables_of(positions, 14), layout=layout)
    first, second = split_pairs(HEADS, layout)
    turn = np.exp(1j * reference_angles(positions, 14, 1e4))[:, None]
    product = (first + 1j * second) * turn
    real, imaginary = split_pairs(rotated, layout)
    assert_close(real, product.real, 3e-6)
    assert_close(imaginary, product.imag, 3e-6)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_rotary_depends_only_on_relative_position(layout):
    # Five copies of one query and one key; the copies differ in position only.
    query, key = (
        jnp.asarray(np.tile(x[:, :1], (1, 5, 1, 1)), jnp.float32) for x in (HEADS, -HEADS)
    )
    starts = jnp.asarray([0, 3, 1009, 65_537, 999_983])

    def products(distance):
        rotated = rotate(query, tables_of(starts, 14), layout=layout)
        partner = rotate(key[:, :, ::-1], tables_of(starts + distance, 14), layout=layout)
        return np.einsum("btnh,btnh->btn", rotated, partner)

    near, far = products(11), products(13)
    assert_close(near, np.tile(near[:, :1], (1, 5, 1)), 1e-5)
    assert np.abs(near - far).min() > 1e-3


def test_rotary_of_a_part_leaves_the_other_features_alone():
    x = np.random.default_rng(11).standard_normal((2, 7, 3, 10)).astype(np.float32)
    tables = rotary_tables(7, 4)
    for layout in ("half", "interleaved"):
        turned = apply_rotary(x, tables, layout=layout, rotary_dim=4)
        expected = apply_rotary(x[..., :4], tables, layout=layout)
        np.testing.assert_array_equal(turned[..., :4], expected)
        np.testing.assert_array_equal(turned[..., 4:], x[..., 4:])
    whole = apply_rotary(x, rotary_tables(7, 10), layout="half")
    again = apply_rotary(x, rotary_tables(7, 10), layout="half", rotary_dim=10)
    np.testing.assert_array_equal(again, whole)


def test_rotary_takes_tables_of_every_row():
    x = jnp.asarray(HEADS, jnp.float32)
    positions = random_positions(8, 1000, (2, 5))
    tables = tables_of(positions, 14)
    together = rotate(x, tables, layout="half")
    for row in range(2):
        alone = rotate(x, [table[row] for table in tables], layout="half")
        assert_close(together[row], alone[row], 1e-6)
    nested = rotate(x[None], [table[None] for table in tables], layout="half")
    assert_close(nested[0], together, 1e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_rotary_computes_in_float32_and_keeps_the_dtype(dtype):
    x, tables = jnp.asarray(HEADS, dtype), tables_of(jnp.arange(5), 14)
    rotated = rotate(x, tables, layout="half")
    assert rotated.dtype == dtype
    wide = rotate(x.astype(jnp.float32), tables, layout="half")
    np.testing.assert_array_equal(rotated, wide.astype(dtype))


def test_rotary_of_float64_stays_float64():
    with jax.enable_x64(True):
        cos, sin = tables_of(jnp.arange(5), 14)
        rotated = rotate(jnp.asarray(HEADS), (cos, sin), layout="half")
        assert rotated.dtype == jnp.float64
        rotated = np.array(rotated)
    cos, sin = (np.asarray(table, np.float64)[:, None] for table in (cos, sin))
    first, second = split_pairs(HEADS, "half")
    expected = np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    assert_close(rotated, expected, 1e-14)
