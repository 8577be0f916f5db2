"""Choice of an attention implementation, and why the others are declined."""

import math
from typing import Any, Literal, NamedTuple

import jax

from jaxformer.functional import platforms
from jaxformer.functional.attention.chunked import why_not_chunked
from jaxformer.functional.attention.inputs import (
    AttentionInputs,
    Bias,
    MaskKeywords,
    add_biases,
    prepare_attention,
    split_bias,
)
from jaxformer.functional.attention.kernels.cudnn import why_not_cudnn
from jaxformer.functional.attention.kernels.splash import why_not_splash
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
from jaxformer.functional.sharding import is_one_device

Name = Literal["dense", "chunked", "cudnn", "splash"]

_MIN_CHUNKED_QUERIES = 65  # Blocks have at least 64, so fewer are all in one.
# Up to this many weights, dense attention is at least as fast as chunked. Measured on CPU;
# elsewhere it is 1 GiB in float32, which a device holds easily.
_MAX_DENSE_WEIGHTS = {"cpu": 2**22, platforms.OTHERS: 2**28}
# Beyond this many weights (16 MiB in float32) dense attention reads and writes them in a TPU's HBM.
_MIN_SPLASH_WEIGHTS = 2**22
_MIN_SPLASH_QUERIES = 128  # Splash pads fewer to this.


class Choice(NamedTuple):
    """Implementation of a call, and why "auto" declines each of the others; {} if it was named."""

    name: Name
    declined: dict[str, str]


def attention_implementation(
    query: Array, key: Array, value: Array, bias: Bias | None = None,
    mask: AnyMask | None = None, *, scale: float | jax.Array | None = None,
    softcap: float | None = None, dropout_rate: float = 0.0,
    precision: jax.lax.PrecisionLike = None, return_residual: bool = False,
    platform: str | None = None, **structure: Any,
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
        precision: as in `dot_product_attention`.
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
            dropout_rate=dropout_rate, precision=precision, return_residual=return_residual,
            **(structure | traced),
        )  # fmt: skip
        choices.append(choose(inputs, platform))

    # Traced instead of called: shapes suffice, and nothing is computed.
    jax.eval_shape(decide, *arrays.values(), position_bias, shapes)
    return choices[0]


def choose(inputs: AttentionInputs, platform: str) -> Choice:
    """The first implementation that nothing speaks against on a platform."""
    *leading, num_queries, num_heads, _ = inputs.query.shape
    known = [size for size in leading if not is_symbolic(size)]
    count = math.prod(known) * num_heads * num_queries * inputs.key.shape[-3]
    most = _MAX_DENSE_WEIGHTS[tuned_for(platform)]
    declined: dict[str, str] = {}
    if (reason := why_not_cudnn(inputs, platform)) is None:
        return Choice("cudnn", _others("cudnn", declined, "cudnn serves this call and is faster"))
    declined["cudnn"] = reason
    if (reason := _why_not_auto_splash(inputs, platform, count)) is None:
        advantage = "splash serves this call and holds no weights in HBM"
        return Choice("splash", _others("splash", declined, advantage))
    declined["splash"] = reason
    if (reason := _why_not_auto_chunked(inputs, count, most)) is None:
        memory = f"it would hold {count:,} weights in memory, more than {most:,}"
        advantage = f"{memory}; chunked does not"
        return Choice("chunked", _others("chunked", declined, advantage))
    return Choice("dense", declined | {"chunked": reason})


def _others(chosen: Name, declined: dict[str, str], advantage: str) -> dict[str, str]:
    """Reasons against all but the chosen implementation: its advantage, unless there is another."""
    names = [name for name in ("cudnn", "splash", "chunked", "dense") if name != chosen]
    return dict.fromkeys(names, advantage) | declined


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
    return "cpu" if platform == platforms.default_platform() == "cpu" else platforms.OTHERS
