"""Choice of an attention implementation for each platform, and programs that call it."""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Unpack, cast

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jaxformer.errors import ConfigError
from jaxformer.functional import platforms
from jaxformer.functional.attention.chunked import block_sizes, chunked_attention, why_not_chunked
from jaxformer.functional.attention.dense import dense_attention
from jaxformer.functional.attention.inputs import (
    AttentionInputs,
    AttentionKeywords,
    Bias,
    ImplementationName,
    prepare_attention,
)
from jaxformer.functional.attention.kernels.cudnn import cudnn_attention, why_not_cudnn
from jaxformer.functional.attention.kernels.splash import splash_attention, why_not_splash
from jaxformer.functional.checks import Array, check_choice, check_keywords, is_symbolic
from jaxformer.functional.masks.base import AnyMask
from jaxformer.functional.sharding import (
    explicit_spec,
    has_explicit_axes,
    is_one_device,
    on_automatic_axes,
)

Attention = Callable[[AttentionInputs], tuple[jax.Array, jax.Array | None]]
"""Function of inputs: output `[..., T, N, Hv]`, and residual `[..., T, N]` or None."""

_FUNCTIONS: dict[ImplementationName, Callable[..., Any]] = {
    "dense": dense_attention,
    "chunked": chunked_attention,
    "cudnn": cudnn_attention,
    "splash": splash_attention,
}

_MIN_CHUNKED_QUERIES = 65  # Blocks have at least 64, so fewer are all in one.
# Up to this many weights, dense attention is at least as fast as chunked. Measured on CPU;
# elsewhere it is 1 GiB in float32, which a device holds easily.
_MAX_DENSE_WEIGHTS = {"cpu": 2**22, platforms.FALLBACK: 2**28}
# Beyond this many weights (16 MiB in float32) dense attention reads and writes them in a TPU's HBM.
_MIN_SPLASH_WEIGHTS = 2**22
_MIN_SPLASH_QUERIES = 128  # Splash pads fewer to this.


class Choice(NamedTuple):
    """Implementation of a call, and why "auto" declines each of the others; {} if it was named."""

    name: ImplementationName
    declined: dict[str, str]


def attention_implementation(
    query: Array,
    key: Array,
    value: Array,
    bias: Bias | None = None,
    mask: AnyMask | None = None,
    *,
    return_residual: bool = False,
    platform: str | None = None,
    **options: Unpack[AttentionKeywords],
) -> Choice:
    """Name of the implementation that `dot_product_attention` uses for a call, and why.

    The choice depends on shapes, dtypes, Python arguments, the mesh, the default backend and the
    platform that the program is compiled for, never on array values. Nothing is computed. If T or S
    is symbolic (`jax.export`), only dense attention is possible; symbolic leading axes count as 1.

    Args:
        query: as in `dot_product_attention`; this and all arrays, also those of rules and of the
            options, may be `jax.ShapeDtypeStruct`.
        key: as in `dot_product_attention`.
        value: as in `dot_product_attention`.
        bias: as in `dot_product_attention`.
        mask: as in `dot_product_attention`.
        return_residual: as in `dot_product_attention`.
        platform: "cpu", "cuda", "rocm" or "tpu"; the default backend's when not given.
        **options: the keywords of `dot_product_attention`; a dropout_rate needs no dropout_rng.

    Returns:
        The name, and the reason for each implementation declined.

    Raises:
        ShapeError: an argument does not fit.
        ConfigError: an option is invalid, the platform is unknown, or the requested implementation
            does not support the call.

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
    check_keywords("attention_implementation", options, AttentionKeywords)
    default = platforms.default_platform()
    platform = default if platform is None else platform
    if not isinstance(platform, str) or platform != default:
        check_choice("platform", platform, ("cpu", "cuda", "rocm", "tpu"))
    leaves, tree = jax.tree.flatten((query, key, value, bias, mask, options))
    shapes = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, jax.ShapeDtypeStruct)}
    choices: list[Choice] = []

    def decide(traced: dict[int, jax.Array]) -> None:
        arguments = [traced.get(i, leaf) for i, leaf in enumerate(leaves)]
        *arrays, keywords = jax.tree.unflatten(tree, arguments)
        keywords = {"dropout_rng": jax.random.key(0)} | keywords
        inputs = prepare_attention(*arrays, return_residual=return_residual, **keywords)
        _check_support(inputs)
        choices.append(_choice(inputs, platform))

    # Traced instead of called: shapes suffice, and nothing is computed.
    jax.eval_shape(decide, shapes)
    return choices[0]


def choose(inputs: AttentionInputs, platform: str) -> Choice:
    """The first implementation that nothing speaks against on a platform."""
    *leading, num_queries, num_heads, _ = inputs.query.shape
    known = [size for size in leading if not is_symbolic(size)]
    count = math.prod(known) * num_heads * num_queries * inputs.key.shape[-3]
    weights = str(count) if is_symbolic(count) else f"{count:,}"
    most = _MAX_DENSE_WEIGHTS[tuned_for(platform)]
    declined: dict[str, str] = {}
    names: tuple[ImplementationName, ...] = ("cudnn", "splash", "chunked")
    reasons = (
        why_not_cudnn(inputs, platform),
        _why_not_auto_splash(inputs, platform, count),
        _why_not_auto_chunked(inputs, count, most),
    )
    advantages = (
        "cudnn serves this call and is faster",
        "splash serves this call and holds no weights in HBM",
        f"it would hold {weights} weights in memory, more than {most:,}; chunked does not",
    )
    for name, reason, advantage in zip(names, reasons, advantages, strict=True):
        if reason is None:
            slower = {key: advantage for key in (*names, "dense") if key != name}
            return Choice(name, slower | declined)
        declined[name] = reason
    return Choice("dense", declined)


def _why_not_auto_chunked(inputs: AttentionInputs, count: int, most: int) -> str | None:
    """First reason why "auto" does not cut a number of weights into blocks, or None if it does."""
    if (reason := why_not_chunked(inputs)) is not None:
        return reason
    if count <= most:
        return (
            f"{count:,} weights are no more than the {most:,} up to which dense is as fast and "
            "compiles faster"
        )
    if (num_queries := inputs.query.shape[-3]) < _MIN_CHUNKED_QUERIES:
        return f"T={num_queries} queries are too few to cut into blocks"
    return None


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


def tuned_for(platform: str) -> str:
    """Platform for whose speed dense or chunked attention is chosen and cut into blocks."""
    # A CPU beside an accelerator runs the accelerator's program, so that only that is traced.
    return "cpu" if platform == platforms.default_platform() == "cpu" else platforms.FALLBACK


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


class _Program(NamedTuple):
    """Implementation for a platform, with its keywords."""

    name: ImplementationName
    keywords: tuple[tuple[str, Any], ...]

    def function(self) -> Attention:
        """The implementation as a function of the inputs."""
        return functools.partial(_FUNCTIONS[self.name], **dict(self.keywords))


def attention_program(inputs: AttentionInputs) -> Attention:
    """The implementation for a call, or that of each platform if they differ."""
    _check_support(inputs)
    if (observed := _observed.get()) is not None:
        observed.append(_choice(inputs, platforms.default_platform()))
    programs = tuple(_program(inputs, platform) for platform in platforms.PLATFORMS)
    attend: Attention = programs[0].function()
    if len(set(programs)) > 1:
        attend = functools.partial(_attend_by_platform, programs)
    if not has_explicit_axes(*jax.tree.leaves(inputs)):
        return attend
    rows, width = explicit_spec(inputs.query)[:-1], explicit_spec(inputs.value)[-1]
    residual = PartitionSpec(*rows) if inputs.static.return_residual else None
    specs = PartitionSpec(*rows, width), residual
    return functools.partial(on_automatic_axes, attend, specs)


def _check_support(inputs: AttentionInputs) -> None:
    """Raises ConfigError if an implementation that was asked for does not support a call."""
    name, reason, remedy = inputs.implementation, None, "chunked"
    if name == "cudnn":
        reason = why_not_cudnn(inputs, "cuda")
    elif name == "splash":
        reason = why_not_splash(inputs, "tpu")
    elif name == "chunked":
        reason, remedy = why_not_chunked(inputs), "dense"
    if reason is not None:
        raise ConfigError(
            f"implementation={name!r} cannot serve this call: {reason}; pass 'auto' or {remedy!r}"
        )


def _choice(inputs: AttentionInputs, platform: str) -> Choice:
    if inputs.implementation == "auto":
        return choose(inputs, platform)
    return Choice(cast(ImplementationName, inputs.implementation), {})


def _program(inputs: AttentionInputs, platform: str) -> _Program:
    name, tuning = _choice(inputs, platform).name, tuned_for(platform)
    keywords: dict[str, Any] = {}
    # Matrix units take bfloat16, as fused kernels do (Dao et al., "FlashAttention", 2022). In
    # float16, small gradients of scores would become 0.
    if name in ("dense", "chunked") and tuning != "cpu" and inputs.query.dtype == jnp.bfloat16:
        keywords["operands"] = "bfloat16"
    if name == "chunked":
        keywords["blocks"] = block_sizes(inputs, tuning)
    return _Program(name, tuple(keywords.items()))


@functools.partial(jax.jit, static_argnums=0)  # layers of a model share one trace of all programs
def _attend_by_platform(
    programs: tuple[_Program, ...], inputs: AttentionInputs
) -> tuple[jax.Array, jax.Array | None]:
    functions = {program: functools.partial(program.function(), inputs) for program in programs}
    named = zip(platforms.PLATFORMS, programs, strict=True)
    return platforms.by_platform({platform: functions[program] for platform, program in named})
