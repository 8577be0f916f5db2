"""Activations by their names at Hugging Face."""

from collections.abc import Mapping

__all__ = ["GATED", "OLDER", "PLAIN", "name_of"]

PLAIN = {
    "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "relu": "relu", "relu2": "relu2", "silu": "silu", "swish": "silu",
}  # fmt: skip
"""Activations of a feed-forward layer without a gate."""
OLDER = {"gelu_new": "gelu_tanh", "swish": "silu"} | PLAIN
"""PLAIN with the names first that files of Marian and BART have."""
GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_pytorch_tanh": "geglu_tanh"}
"""Activations of a feed-forward layer with a gate."""


def name_of(activation: str, names: Mapping[str, str] = PLAIN) -> str:
    """The first name of an activation; where it has none, the first of all names.

    What is written is read again and compared, so that an activation without a name is refused.

    Example:
        >>> name_of("gelu_tanh"), name_of("swiglu", GATED)
        ('gelu_pytorch_tanh', 'silu')
    """
    return next((name for name, ours in names.items() if ours == activation), next(iter(names)))
