"""Base class of models: what a user may bring to them, logits, and initial parameters."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from flax import linen as nn
from flax.core import freeze

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional.attention import dot_product_attention
from jaxformer.models.contexts import AttentionFunctions
from jaxformer.models.init_shapes import draw_params
from jaxformer.modules.block import Block
from jaxformer.modules.embedding import Embedding
from jaxformer.modules.positions import Positions


class Model(nn.Module):
    """A Flax module of one or two `Transformer`s.

    Args:
        config: the model.
        block: makes the block of all layers, as in `Transformer`.
        attention_fn: self-attention function, or functions by name, as in `Transformer`.
        position_scheme: position scheme instead of `config.positions`; each `Transformer` has a
            copy with its own parameters.
    """

    config: ModelConfig
    block: Callable[..., nn.Module] = Block
    attention_fn: AttentionFunctions = dot_product_attention
    position_scheme: Positions | None = None

    def __post_init__(self) -> None:
        """Makes the module hashable, so that it can be a static argument of jit."""
        if isinstance(self.attention_fn, Mapping):
            self.attention_fn = freeze(dict(self.attention_fn))
        super().__post_init__()

    if TYPE_CHECKING:
        # Flax types the result as a union with a tuple, so a type checker rejects its `logits`.
        def apply(self, variables: Any, *arguments: Any, **options: Any) -> Any:
            """Calls the model with these variables, as `flax.linen.Module.apply` does."""

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Logits float32 `[..., V]` of float `[..., D]` hidden states."""
        return self.output_embedding().logits(hidden)

    def output_embedding(self) -> Embedding:
        """Embedding whose output table `[V, D]` and bias make the logits."""
        return self.encoder.output_embedding()  # of a model that has one `Transformer`

    @nn.nowrap
    def init_params(self, rng: jax.Array) -> Any:
        """Initial parameters: `nn.unbox(init(rng, tokens))["params"]`, without an input.

        One program draws them, which is compiled once for equal models.

        Args:
            rng: a PRNG key.

        Returns:
            A pytree of arrays of the config's param_dtype.

        Example:
            >>> import jax
            >>> from jaxformer.config import ModelConfig
            >>> from jaxformer.models import Decoder
            >>> model = Decoder(ModelConfig(vocab_size=11, max_len=8, num_layers=1))
            >>> params = model.init_params(jax.random.key(0))
            >>> params["embedding"]["embedding"].shape
            (11, 128)
        """
        return draw_params(self, rng, *self._smallest_inputs())

    @nn.nowrap
    def _parts(self) -> dict[str, Any]:
        """Block, attention function and position scheme, as arguments of a `Transformer`."""
        return {
            "block": self.block,
            "attention_fn": self.attention_fn,
            "position_scheme": self.position_scheme,
        }

    @nn.nowrap
    def _require_architecture(self, architecture: str, kind: str) -> None:
        """Raises ConfigError unless the config has the architecture of this kind of model."""
        if self.config.architecture != architecture:
            raise ConfigError(
                f"{kind} needs architecture {architecture!r}, got {self.config.architecture!r}"
            )

    @nn.nowrap
    def _smallest_inputs(self) -> tuple[np.ndarray, ...]:
        """Tokens `[1, 1]`."""
        return (np.zeros((1, 1), np.int32),)
