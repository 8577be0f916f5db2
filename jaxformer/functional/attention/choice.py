"""Choice of an attention implementation, and why the others are declined."""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jaxformer.errors import ConfigError
from jaxformer.functional import platforms
from jaxformer.functional.attention.chunked import (
    Blocks,
    block_sizes,
    chunked_attention,
    why_not_chunked,
)
from jaxformer.functional.attention.cudnn import cudnn_attention, why_not_cudnn
from jaxformer.functional.attention.dense import dense_attention
from jaxformer.functional.attention.inputs import (
    AttentionInputs,
    Bias,
    Implementation,
    MaskKeywords,
    add_biases,
    prepare_attention,
    split_bias,
)
from jaxformer.functional.attention.splash import splash_attention, why_not_splash
from jaxformer.functional.checks import (
    Array,
    as_array,
    check_choice,
    check_dtype,
    check_keywords,
    is_symbolic,
)
from jaxformer.functional.masks.base import AnyMask, Mask
from jaxformer.functional.positions.biases import PositionBias
from jaxformer.functional.sharding import (
    explicit_spec,
    has_explicit_axes,
    is_one_device,
    on_automatic_axes,
)

Name = Literal["dense", "chunked", "cudnn", "splash"]

_Attended = tuple[jax.Array, jax.Array | None]
_FUNCTIONS: dict[Name, Callable[..., _Attended]] = {
    "dense": dense_attention,
    "chunked": chunked_attention,
    "cudnn": cudnn_attention,
    "splash": splash_attention,
}
_MIN_CHUNKED_QUERIES = 65  # Blocks have at least 64, so fewer are all in one.
# Up to this many weights, dense attention is at least as fast as chunked. Measured on CPU;
# elsewhere it is 1 GiB in float32, which a device holds easily.
_MAX_DENSE_WEIGHTS = {"cpu": 2**22, platforms.OTHERS: 2**28}
# Beyond this many weights (16 MiB in float32) dense attention reads and writes them in a TPU's HBM.
_MIN_SPLASH_WEIGHTS = 2**22
_MIN_SPLASH_QUERIES = 128  # Splash pads fewer to this.


class Choice(NamedTuple):
    """Implementation that "auto" takes, and the reason why each of the others is declined."""

    name: Name
    declined: dict[str, str]


_observed: contextvars.ContextVar[list[Choice] | None] = contextvars.ContextVar(
    "observed choices", default=None
)


@contextlib.contextmanager
def observed_choices() -> Iterator[list[Choice]]:
    """List of the choices that attention traced in this context makes on the default platform."""
    choices: list[Choice] = []
    token = _observed.set(choices)
    try:
        yield choices
    finally:
        _observed.reset(token)


def describe_choices(choices: Sequence[Choice]) -> list[str]:
    """Each implementation in use, and why no fused kernel is, for the default platform.

    Example:
        >>> describe_choices([Choice("chunked", {"cudnn": "it has no soft cap"})] * 2)
        ['chunked (a CPU has no fused kernel)']
    """
    platform = platforms.default_platform()
    kernel = {"cuda": "cudnn", "tpu": "splash"}.get(platform)
    lines = []
    for name, declined in choices:
        if name in ("cudnn", "splash"):
            lines.append(f"{name}, a fused kernel")
        elif not declined:
            lines.append(f"{name}, as it was asked for")
        elif kernel is None:
            lines.append(f"{name} (a {platform.upper()} has no fused kernel)")
        else:
            lines.append(f"{name}, not the fused kernel {kernel}: {declined[kernel]}")
    return list(dict.fromkeys(lines))


class _Program(NamedTuple):
    """Implementation for a platform, with block sizes if chunked."""

    name: Name
    operands: str | None  # as in `StaticOptions`
    blocks: Blocks | None


def attention_implementation(
    query: Array, key: Array, value: Array, bias: Bias | None = None,
    mask: AnyMask | None = None, *, scale: float | None = None, softcap: float | None = None,
    dropout_rate: float = 0.0, return_residual: bool = False, platform: str | None = None,
    **structure: Any,
) -> Choice:  # fmt: skip
    """Name of the implementation that `dot_product_attention` uses for a call, and why.

    The choice depends on shapes, dtypes, Python arguments, the mesh, the default backend and the
    platform that the program is compiled for, never on array values. Nothing is computed. If T or S
    is symbolic (`jax.export`), only dense attention is possible; symbolic leading axes count as 1.

    Args:
        query: as in `dot_product_attention`; this and all arrays, also those of rules and of the
            structure, may be `jax.ShapeDtypeStruct`.
        key: as in `dot_product_attention`.
        value: as in `dot_product_attention`.
        bias: as in `dot_product_attention`.
        mask: as in `dot_product_attention`.
        scale: as in `dot_product_attention`.
        softcap: as in `dot_product_attention`.
        dropout_rate: as in `dot_product_attention`.
        return_residual: as in `dot_product_attention`.
        platform: "cpu", "cuda", "rocm" or "tpu"; the default backend's when not given.
        **structure: as in `attention_weights`.

    Returns:
        The name, and the reason for each implementation declined.

    Raises:
        ShapeError: an argument does not fit.
        ConfigError: an option is invalid, or the platform is unknown.

    Example:
        >>> x = jax.ShapeDtypeStruct((1, 1024, 8, 64), "float32")
        >>> choice = attention_implementation(x, x, x, is_causal=True, platform="cpu")
        >>> choice.name
        'chunked'
        >>> choice.declined["cudnn"]
        'it needs an NVIDIA GPU, and the default backend is cpu'
        >>> attention_implementation(x, x, x, is_causal=True, platform="tpu").name
        'dense'
    """
    check_keywords("attention_implementation", structure, MaskKeywords)
    shapes = {k: v for k, v in structure.items() if isinstance(v, jax.ShapeDtypeStruct)}
    default = platforms.default_platform()
    platform = default if platform is None else platform
    if not isinstance(platform, str) or platform != default:
        check_choice("platform", platform, ("cpu", "cuda", "rocm", "tpu"))
    array, position_bias = split_bias(bias)
    arrays: dict[str, Any] = {
        "query": query, "key": key, "value": value, "bias": array, "mask": mask,
    }  # fmt: skip
    for name, argument in arrays.items():
        if isinstance(argument, Mask):
            continue
        if argument is not None and not hasattr(argument, "dtype"):
            arrays[name] = as_array(name, argument)
        elif argument is not None:
            check_dtype(name, argument, "bool" if name == "mask" else "floating")
    choices: list[Choice] = []

    def decide(
        query: Array, key: Array, value: Array, bias: Array | None, mask: AnyMask | None,
        position_bias: PositionBias | None, traced: Any,
    ) -> None:  # fmt: skip
        inputs = prepare_attention(
            query, key, value, add_biases(bias, position_bias), mask, scale=scale, softcap=softcap,
            dropout_rate=dropout_rate, return_residual=return_residual, **(structure | traced),
        )  # fmt: skip
        choices.append(_choose(inputs, platform))

    # Traced instead of called: shapes suffice, and nothing is computed.
    jax.eval_shape(decide, *arrays.values(), position_bias, shapes)
    return choices[0]


def attend_by(
    implementation: Implementation, inputs: AttentionInputs, dropout_rng: jax.Array | None
) -> _Attended:
    """Attention `[..., T, N, Hv]` and the residual `[..., T, N]` or None, by an implementation."""
    name = check_implementation(implementation)
    reason, remedy = None, "dense"
    if name == "cudnn":
        reason, remedy = why_not_cudnn(inputs, "cuda"), "chunked"
    elif name == "splash":
        reason, remedy = why_not_splash(inputs, "tpu"), "chunked"
    elif name == "chunked":
        reason = why_not_chunked(inputs)
    if reason is not None:
        raise ConfigError(
            f"implementation={name!r} cannot serve this call: {reason}; pass 'auto' or {remedy!r}"
        )
    if (observed := _observed.get()) is not None:
        asked = None if name == "auto" else Choice(cast(Name, name), {})
        observed.append(asked or _choose(inputs, platforms.default_platform()))
    programs = tuple(_program(name, inputs, platform) for platform in platforms.PLATFORMS)

    def attend(inputs: AttentionInputs, dropout_rng: jax.Array | None) -> _Attended:
        if len(set(programs)) == 1:
            return _run(programs[0], inputs, dropout_rng)
        return _run_by_platform(inputs, dropout_rng, programs)

    arrays = [leaf for leaf in jax.tree.leaves(inputs) if hasattr(leaf, "dtype")]
    if not has_explicit_axes(*arrays):
        return attend(inputs, dropout_rng)
    rows, width = explicit_spec(inputs.query)[:-1], explicit_spec(inputs.value)[-1]
    residual = PartitionSpec(*rows) if inputs.static.return_residual else None
    return on_automatic_axes(attend, (PartitionSpec(*rows, width), residual), inputs, dropout_rng)


def check_implementation(implementation: Implementation) -> str:
    """Checks the name of an implementation; "xla" and None mean dense."""
    name = "dense" if implementation in ("xla", None) else implementation
    if name != "auto" and (not isinstance(name, str) or name not in _FUNCTIONS):
        raise ConfigError(
            "implementation must be 'auto', 'dense', 'chunked', 'cudnn' or 'splash' (None and "
            f"'xla' mean dense), got {implementation!r}"
        )
    return name


def _program(name: str, inputs: AttentionInputs, platform: str) -> _Program:
    taken = _choose(inputs, platform).name if name == "auto" else cast(Name, name)
    tuning = _tuning(platform)
    blocks = block_sizes(inputs, tuning) if taken == "chunked" else None
    # Matrix units take bfloat16, as fused kernels do (Dao et al., "FlashAttention", 2022). In
    # float16, small gradients of scores would become 0.
    rounds = tuning != "cpu" and inputs.query.dtype == jnp.bfloat16
    return _Program(taken, "bfloat16" if rounds and taken in ("dense", "chunked") else None, blocks)


def _tuning(platform: str) -> str:
    """Platform for whose speed dense or chunked attention is chosen and cut into blocks."""
    # A CPU beside an accelerator runs the accelerator's program, so that only that is traced.
    return "cpu" if platform == platforms.default_platform() == "cpu" else platforms.OTHERS


def _run(program: _Program, inputs: AttentionInputs, dropout_rng: jax.Array | None) -> _Attended:
    inputs = inputs._replace(static=inputs.static._replace(operands=program.operands))
    options = () if program.blocks is None else (program.blocks,)
    return _FUNCTIONS[program.name](inputs, dropout_rng, *options)


@platforms.jit_with_numbers  # the layers of a model share one trace of all programs
def _run_by_platform(
    inputs: AttentionInputs, dropout_rng: jax.Array | None, programs: tuple[_Program, ...]
) -> _Attended:
    runs = {program: functools.partial(_run, program, inputs, dropout_rng) for program in programs}
    named = zip(platforms.PLATFORMS, programs, strict=True)
    return platforms.by_platform({platform: runs[program] for platform, program in named})


def _choose(inputs: AttentionInputs, platform: str) -> Choice:
    *leading, num_queries, num_heads, _ = inputs.query.shape
    known = [size for size in leading if not is_symbolic(size)]
    count = math.prod(known) * num_heads * num_queries * inputs.key.shape[-3]
    no_cudnn = why_not_cudnn(inputs, platform)
    if no_cudnn is None:
        slower = "cudnn serves this call and is faster"
        return Choice("cudnn", {"dense": slower, "chunked": slower, "splash": slower})
    declined = {"cudnn": no_cudnn}
    no_splash = _why_not_auto_splash(inputs, platform, count)
    if no_splash is None:
        slower = "splash serves this call and holds no weights in HBM"
        return Choice("splash", declined | {"dense": slower, "chunked": slower})
    declined["splash"] = no_splash
    no_chunked = why_not_chunked(inputs)
    if no_chunked is not None:
        return Choice("dense", declined | {"chunked": no_chunked})
    most = _MAX_DENSE_WEIGHTS[_tuning(platform)]
    if count <= most:
        declined["chunked"] = (
            f"{count:,} weights are no more than the {most:,} up to which dense is as fast and "
            "compiles faster"
        )
    elif num_queries < _MIN_CHUNKED_QUERIES:
        declined["chunked"] = f"T={num_queries} queries are too few to cut into blocks"
    else:
        declined["dense"] = (
            f"it would hold {count:,} weights in memory, more than {most:,}; chunked does not"
        )
        return Choice("chunked", declined)
    return Choice("dense", declined)


def _why_not_auto_splash(inputs: AttentionInputs, platform: str, count: int) -> str | None:
    """First reason why "auto" does not take Splash for a number of weights, or None if it does."""
    backend = platforms.default_platform()
    if backend != "tpu":
        # Elsewhere nearly no program is compiled for a TPU, and each would trace the kernel.
        return f"'auto' takes it on TPUs, and the default backend is {backend}"
    reason = why_not_splash(inputs, platform)
    if reason is not None:
        return reason
    if not is_one_device():
        return "jit may split this program over devices, but only pmap and shard_map split a kernel"
    if count <= _MIN_SPLASH_WEIGHTS:
        return f"{count:,} weights are no more than the {_MIN_SPLASH_WEIGHTS:,} that dense can hold"
    if inputs.query.shape[-3] < _MIN_SPLASH_QUERIES:
        return f"T={inputs.query.shape[-3]} queries are fewer than a block of {_MIN_SPLASH_QUERIES}"
    return None
