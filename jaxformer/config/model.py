"""Config of a model."""

import dataclasses
import itertools
from collections.abc import Iterator

from jaxformer.config.model_checks import model_mistakes
from jaxformer.config.model_keys import ModelKeys
from jaxformer.config.model_parts import LayerConfig
from jaxformer.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(ModelKeys):  # noqa: D101
    __doc__ = ModelKeys.__doc__

    def _mistakes(self) -> Iterator[str]:
        yield from model_mistakes(self)
        try:
            _ = self.base  # whose widths are checked
        except ConfigError as error:
            yield f"the base model of mup is impossible: {error}"

    @property
    def embedding_factor(self) -> float:
        """Factor of the embeddings, the default filled in."""
        if self.embedding_scale is not None:
            return self.embedding_scale
        return self.base.d_model**0.5 if self.scale_embeddings else 1.0

    @property
    def attention_factor(self) -> float | None:
        """Factor of the attention scores; None for 1 / sqrt(head_dim)."""
        if self.mup is None:
            return self.attention_scale
        scale = self.base.attention_scale or self.base.key_dim**-0.5
        return scale * self.base.key_dim / self.key_dim

    @property
    def logit_factor(self) -> float | None:
        """Factor of the logits; None for 1."""
        if self.mup is None:
            return self.logit_scale
        ratio = self.base.table_dim / self.table_dim
        if not self.tied_embeddings:
            ratio = self.base.d_model / self.d_model
        return (self.logit_scale or 1.0) * ratio

    @property
    def base(self) -> "ModelConfig":
        """Config of the base model of μP; without μP, the config itself."""
        if self.mup is None:
            return self
        widths = {name: size for name, size in vars(self.mup).items() if size is not None}
        return dataclasses.replace(self, mup=None, **widths)

    @property
    def without_mup(self) -> "ModelConfig":
        """Config of a model that computes the same from the same parameters, without μP."""
        if self.mup is None:
            return self
        return dataclasses.replace(
            self, mup=None, attention_scale=self.attention_factor, logit_scale=self.logit_factor,
            embedding_scale=self.embedding_factor, scale_embeddings=False,
        )  # fmt: skip

    @property
    def layer_overrides(self) -> tuple[LayerConfig, ...]:
        """Overrides of every layer, `num_layers` of them.

        Example:
            >>> windowed, whole = LayerConfig(local_window_size=4), LayerConfig()
            >>> config = ModelConfig(
            ...     max_len=8, num_layers=5, d_model=4, num_heads=2, layers=(windowed, whole)
            ... )
            >>> [layer.local_window_size for layer in config.layer_overrides]
            [4, None, 4, None, 4]
        """
        pattern, rest = self.layers or (LayerConfig(),), self.num_layers - len(self.first_layers)
        return (*self.first_layers, *itertools.islice(itertools.cycle(pattern), rest))

    @property
    def target_embedding(self) -> "ModelConfig":
        """Config of the decoder's embedding; `embedding_dim` is that of a separate source table."""
        if self.source_vocab_size is None:
            return self
        return dataclasses.replace(self, embedding_dim=None)

    @property
    def encoder(self) -> "ModelConfig":
        """Config of the encoder of an encoder-decoder."""
        layers, size = self.num_encoder_layers, self.source_vocab_size
        return dataclasses.replace(
            self,
            architecture="encoder",
            num_layers=self.num_layers if layers is None else layers,
            vocab_size=self.vocab_size if size is None else size,
            num_encoder_layers=None,
            source_vocab_size=None,
            tied_embeddings=self.tied_embeddings and size is None,  # a separate table is not
        )
