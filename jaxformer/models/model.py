"""Base class of models: a Flax module with typed `apply`, and initial parameters in a call."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError


class Model(nn.Module):
    """A Flax module whose `apply` is typed for calls without `mutable`.

    Flax types the result as a union with a tuple, so a type checker rejects its `logits`.
    """

    config: ModelConfig

    if TYPE_CHECKING:

        def apply(self, variables: Any, *arguments: Any, **options: Any) -> Any:
            """Calls the model with these variables, as `flax.linen.Module.apply` does."""

    @nn.nowrap
    def init_params(self, rng: jax.Array) -> Any:
        """Initial parameters: `init(rng, ...)["params"]` of a smallest input of the model.

        Args:
            rng: a PRNG key.

        Returns:
            A pytree of arrays of the config's param_dtype.

        Example:
            >>> import jax
            >>> from jaxformer.config import ModelConfig
            >>> from jaxformer.models import Decoder
            >>> model = Decoder(ModelConfig(vocab_size=11, max_len=8, num_layers=1, d_model=4,
            ...                             num_heads=2))
            >>> params = jax.jit(model.init_params)(jax.random.key(0))
            >>> params["embedding"]["embedding"].shape
            (11, 4)
        """
        return self.init(rng, *self._smallest_inputs())["params"]

    @nn.nowrap
    def _require_architecture(self, architecture: str, kind: str) -> None:
        """Raises ConfigError unless the config has the architecture of this kind of model."""
        if self.config.architecture != architecture:
            raise ConfigError(
                f"{kind} needs architecture {architecture!r}, got {self.config.architecture!r}"
            )

    @nn.nowrap
    def _smallest_inputs(self) -> tuple[jax.Array, ...]:
        """Tokens `[1, 1]`."""
        return (jnp.zeros((1, 1), jnp.int32),)
