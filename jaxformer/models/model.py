"""Base class of models: a Flax module with a usable type for the result of `apply`."""

from typing import TYPE_CHECKING, Any

from flax import linen as nn

__all__ = ["Model"]


class Model(nn.Module):
    """A Flax module whose `apply` is typed for calls without `mutable`.

    Flax types the result as a union with a tuple, so a type checker rejects its `logits`.
    """

    if TYPE_CHECKING:

        def apply(self, variables: Any, *arguments: Any, **options: Any) -> Any:
            """Calls the model with these variables, as `flax.linen.Module.apply` does."""
