"""Activations by their Hugging Face names."""

from collections.abc import Mapping

__all__ = ["GATED", "OLDER", "PLAIN", "name_of"]

PLAIN = {
    "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "relu": "relu", "relu2": "relu2", "silu": "silu", "swish": "silu",
}  # fmt: skip
"""Activations of a feed-forward layer without a gate."""
OLDER = {"gelu_new": "gelu_tanh", "swish": "silu"} | PLAIN
"""PLAIN, with the names of Marian and BART files first."""
GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_pytorch_tanh": "geglu_tanh"}
"""Activations of a feed-forward layer with a gate."""


def name_of(activation: str, names: Mapping[str, str] = PLAIN) -> str:
    """The first name of an activation; if it has none, the first of all names.

    Written configs are read back and compared, so an activation without a name is refused there.

    Example:
        >>> name_of("gelu_tanh"), name_of("swiglu", GATED)
        ('gelu_pytorch_tanh', 'silu')
    """
    return next((name for name, ours in names.items() if ours == activation), next(iter(names)))
