"""Which implementation serves a call of attention, and why the others do not."""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax

from jaxformer.errors import ConfigError
from jaxformer.functional.attention.chunked import chunked_attention
from jaxformer.functional.attention.cudnn import cudnn_attention, why_not_cudnn
from jaxformer.functional.attention.dense import dense_attention
from jaxformer.functional.attention.inputs import (
    AttentionInputs,
    AttentionOptions,
    prepare_attention,
)
from jaxformer.functional.shapes import Array

__all__ = ["Choice", "Implementation", "attention_implementation", "select_implementation"]

Name = Literal["dense", "chunked", "cudnn"]
Implementation = Literal["auto", "dense", "chunked", "cudnn", "xla"] | None

_FUNCTIONS: dict[Name, Callable[[AttentionInputs, jax.Array | None], jax.Array]] = {
    "dense": dense_attention,
    "chunked": chunked_attention,
    "cudnn": cudnn_attention,
}
_MIN_CHUNKED_QUERIES = 65  # A block has at least 64, so fewer would all be in one block.
# Up to so many weights dense attention is at least as fast as chunked. On CPU that was measured;
# elsewhere it is what a device holds easily, 1 GiB in float32.
_MAX_DENSE_WEIGHTS = {"cpu": 2**22, "other": 2**28}


class Choice(NamedTuple):
    """Result of `attention_implementation`.

    Args:
        name: what "auto" takes: "dense", "chunked" or "cudnn".
        declined: why it does not take each of the others, in words.
    """

    name: Name
    declined: dict[str, str]


def attention_implementation(
    query: Array, key: Array, value: Array, bias: Array | None = None, mask: Array | None = None,
    **options: Any,
) -> Choice:  # fmt: skip
    """Name of the implementation that `dot_product_attention` takes for a call, and why.

    The choice is made when a program is traced, from shapes, dtypes, Python arguments and the
    default backend, never from the values of arrays. Nothing is computed here.

    Args:
        query: as in `dot_product_attention`; here and below a `jax.ShapeDtypeStruct` will do.
        key: as in `dot_product_attention`.
        value: as in `dot_product_attention`.
        bias: as in `dot_product_attention`.
        mask: as in `dot_product_attention`.
        **options: its other arguments, without dropout_rng and implementation.

    Returns:
        The name, and for each implementation declined the reason.

    Raises:
        ShapeError: an argument does not fit.
        ConfigError: an option is impossible.

    Example:
        >>> x = jax.ShapeDtypeStruct((1, 16, 4, 8), "float32")
        >>> choice = attention_implementation(x, x, x, is_causal=True)
        >>> choice.name
        'dense'
        >>> choice.declined["cudnn"]
        'it needs an NVIDIA GPU, and the default backend is cpu'
    """
    dropout_rate = options.pop("dropout_rate", 0.0)
    for name in options:
        if name not in AttentionOptions._fields:
            raise TypeError(f"attention_implementation() has no argument {name!r}")
    choices: list[Choice] = []

    def decide(
        query: Array, key: Array, value: Array, bias: Array | None, mask: Array | None
    ) -> None:
        inputs = prepare_attention(
            query, key, value, bias, mask, AttentionOptions(**options), dropout_rate
        )
        choices.append(_choose(inputs))

    # Traced rather than called, so that shapes will do for arrays and nothing is computed.
    jax.eval_shape(decide, query, key, value, bias, mask)
    return choices[0]


def select_implementation(
    inputs: AttentionInputs, wanted: Implementation
) -> Callable[[AttentionInputs, jax.Array | None], jax.Array]:
    """Function of the implementation that serves a call.

    Args:
        inputs: checked inputs.
        wanted: its name; "auto" to choose, None and "xla" for dense.

    Returns:
        A function of the inputs and the dropout key.

    Raises:
        ConfigError: the name is unknown, or that implementation cannot serve the call.
    """
    name = "dense" if wanted in ("xla", None) else wanted
    if name == "auto":
        return _FUNCTIONS[_choose(inputs).name]
    if not isinstance(name, str) or name not in _FUNCTIONS:
        raise ConfigError(
            f"implementation must be 'auto', 'dense', 'chunked' or 'cudnn' (None and 'xla' mean "
            f"dense), got {wanted!r}"
        )
    reason = why_not_cudnn(inputs) if name == "cudnn" else None
    if reason is not None:
        raise ConfigError(
            f"implementation='cudnn' cannot serve this call: {reason}; pass 'auto' or 'chunked'"
        )
    return _FUNCTIONS[name]


def _choose(inputs: AttentionInputs) -> Choice:
    *leading, num_queries, num_heads, _ = inputs.query.shape
    count = math.prod(leading) * num_heads * num_queries * inputs.key.shape[-3]
    most = _MAX_DENSE_WEIGHTS["cpu" if jax.default_backend() == "cpu" else "other"]
    no_cudnn = why_not_cudnn(inputs)
    if no_cudnn is None:
        slower = "cudnn serves this call and is faster"
        return Choice("cudnn", {"dense": slower, "chunked": slower})
    declined = {"cudnn": no_cudnn}
    if count <= most:
        declined["chunked"] = (
            f"{count:,} weights are no more than the {most:,} for which dense is as fast and "
            "compiles faster"
        )
    elif num_queries < _MIN_CHUNKED_QUERIES:
        declined["chunked"] = f"T={num_queries} queries are too few to cut into blocks"
    else:
        declined["dense"] = (
            f"it would hold {count:,} weights at once, more than {most:,}; chunked never does"
        )
        return Choice("chunked", declined)
    return Choice("dense", declined)
