"""Checks of the token arrays that models take."""

import jax

from jaxformer.errors import ShapeError
from jaxformer.functional.shapes import check_axes, check_dtype

__all__ = ["check_lengths", "check_tokens"]


def check_tokens(name: str, tokens: jax.Array, max_len: int) -> dict[str, int]:
    """Checks that tokens are integer `[B, T]` with T of at most max_len, and returns B and T."""
    sizes = check_axes(name, tokens, "B T")
    check_dtype(name, tokens, "integer")
    if sizes["T"] > max_len:
        raise ShapeError(
            f"{name} [B, T] must have T of at most max_len={max_len}, got shape {tokens.shape}; "
            "cut them into windows"
        )
    return sizes


def check_lengths(name: str, lengths: jax.Array | None, batch: int) -> None:
    """Checks that lengths, where given, are integer `[B]`."""
    if lengths is not None:
        check_axes(name, lengths, "B", {"B": batch})
        check_dtype(name, lengths, "integer")
