"""Config of a model: what follows from several of its keys, and whether they agree."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import ClassVar

from jaxformer.config.model_keys import ModelKeys
from jaxformer.config.model_parts import LayerConfig
from jaxformer.config.positions import (
    IN_EMBEDDINGS,
    LongropeScalingConfig,
    PositionsConfig,
    RelativeConfig,
    RotaryConfig,
)
from jaxformer.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(ModelKeys):  # noqa: D101
    __doc__ = ModelKeys.__doc__

    # No published design has cross-attention in parallel with other sublayers.
    ONLY_FOR: ClassVar = {
        ("num_encoder_layers", "architecture"): ("encoder_decoder",),
        ("source_vocab_size", "architecture"): ("encoder_decoder",),
        ("num_classes", "architecture"): ("encoder", "decoder"),
        ("pooling", "architecture"): ("encoder", "decoder"),
        ("pooler", "architecture"): ("encoder",),
        ("head_bias", "architecture"): ("encoder",),
        ("num_token_types", "architecture"): ("encoder", "decoder"),
        ("residual", "architecture"): ("encoder", "decoder"),
        ("residual", "norm_position"): ("pre",),
        ("qk_norm_over", "qk_norm"): (True,),
        ("embedding_scale", "scale_embeddings"): (False,),
    }

    def _mistakes(self) -> Iterator[str]:
        yield from _mistakes_of_widths(self)
        if self.pooling == "none" and (self.architecture != "encoder" or self.num_classes is None):
            yield (
                "pooling 'none' is for an encoder that classifies each token, "
                f"{self.got('architecture', 'num_classes')}; choose another pooling"
            )
        yield from _mistakes_of_layers(self)
        layers = [layer.positions for layer in (*self.first_layers, *self.layers)]
        for positions in (self.positions, *(scheme for scheme in layers if scheme is not None)):
            yield from _mistakes_of_positions(self, positions)
        yield from _mistakes_of_mup(self)
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
        ratio = self.base.target_embedding.table_dim / self.target_embedding.table_dim
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
    def has_cross_attention(self) -> bool:
        """Whether blocks also attend to an encoder's output: those of an encoder-decoder."""
        return self.architecture == "encoder_decoder"

    @property
    def num_sublayers(self) -> int:
        """Sublayers of each block: attention, perhaps cross-attention, and feed-forward."""
        return 3 if self.has_cross_attention else 2

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
        pattern, count = self.layers or (LayerConfig(),), self.num_layers - len(self.first_layers)
        return (*self.first_layers, *itertools.islice(itertools.cycle(pattern), count))

    def of_group(self, name: str) -> "ModelConfig":
        """Config of the "first_layers", which may have no experts, or of all other "layers"."""
        is_dense = any(layer.experts is False for layer in self.first_layers)
        if name != "first_layers" or not is_dense:
            return self
        first = tuple(dataclasses.replace(layer, experts=None) for layer in self.first_layers)
        return dataclasses.replace(self, experts=None, first_layers=first)

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


def _mistakes_of_widths(model: ModelConfig) -> Iterator[str]:
    if model.head_dim is None and model.d_model % model.num_heads:
        yield (
            f"d_model must be a multiple of num_heads, {model.got('d_model', 'num_heads')}; change "
            "one of them, or set head_dim"
        )
    if model.num_heads % model.kv_heads:
        got = model.got("num_heads", "num_kv_heads")
        yield f"num_heads must be a multiple of num_kv_heads, {got}"
    # A decoder projects back to the width of the table. A classifier has no logits of tokens, and
    # a separate table of the source is never the output.
    is_scored = model.num_classes is None and model.source_vocab_size is None
    projects = not is_scored or model.architecture == "decoder"
    if model.table_dim != model.d_model and model.tied_embeddings and not projects:
        yield (
            "tied embeddings must be as wide as the model, except in a decoder, "
            f"{model.got('embedding_dim', 'd_model')}; set tied_embeddings = false"
        )


def _mistakes_of_layers(model: ModelConfig) -> Iterator[str]:
    first, pattern = model.first_layers, model.layers
    depths = {"num_layers": model.num_layers}
    if model.architecture == "encoder_decoder" and model.num_encoder_layers is not None:
        depths["num_encoder_layers"] = model.num_encoder_layers
    for name, depth in depths.items():
        if len(first) + len(pattern) > depth:
            yield (
                f"first_layers and the pattern in layers must be at most as many as {name}, got "
                f"{len(first)} and {len(pattern)} of them and {name}={depth}; remove some, or "
                f"raise {name}"
            )
    yield from _mistakes_of_first_layers(model)
    kind, has_own = model.positions.kind, any(layer.positions for layer in (*first, *pattern))
    if kind in IN_EMBEDDINGS and has_own:
        yield (
            f"{kind} positions are added to the embeddings, which all layers share, got a layer "
            "with positions; remove them, or set model.positions = 'none'"
        )


def _mistakes_of_first_layers(model: ModelConfig) -> Iterator[str]:
    """Where layers with the same parameters would leave out different ones."""
    rules = {
        "attention_norm": ("norm_position 'pre'", "norm_position", model.norm_position == "pre"),
        "experts": ("experts in the model", "experts", model.experts is not None),
    }
    for name, (condition, key, holds) in rules.items():
        first = [getattr(layer, name) for layer in model.first_layers]
        pattern = [getattr(layer, name) for layer in model.layers]
        is_set = any(value is not None for value in first)
        in_pattern = any(value is not None for value in pattern)
        if in_pattern or len({value is not False for value in first}) > 1 or (is_set and not holds):
            yield (
                f"{name} is for first_layers with {condition}, and the same in all of them, since "
                f"they have the same parameters, {model.got(key)} and in the layers "
                f"{[*first, *pattern]}; remove it, or make only those layers first_layers that "
                "differ"
            )


def _mistakes_of_positions(model: ModelConfig, positions: PositionsConfig) -> Iterator[str]:
    if isinstance(positions, RotaryConfig):
        width = positions.rotary_dim or model.key_dim
        if width > model.key_dim:
            got = f"rotary_dim={width} and head_dim={model.key_dim}"
            yield f"rotary_dim must be at most head_dim, got {got}"
        if width % 2:
            yield (
                f"rotary positions need an even head_dim or rotary_dim, got {width}; change "
                "d_model, num_heads or head_dim, or set rotary_dim"
            )
        scaling = positions.scaling
        if isinstance(scaling, LongropeScalingConfig) and 2 * len(scaling.short_factor) != width:
            yield (
                "short_factor and long_factor must have one number for each frequency, half as "
                f"many as rotated features, got numbers={len(scaling.short_factor)} and "
                f"features={width}"
            )
    if isinstance(positions, RelativeConfig) and model.architecture != "decoder":
        if positions.num_buckets < 4 or positions.num_buckets % 2:
            yield (
                "num_buckets of relative positions of an encoder must be even, and at least 4: "
                f"half of them are for keys after the query, {positions.got('num_buckets')}"
            )


def _mistakes_of_mup(model: ModelConfig) -> Iterator[str]:
    """Whether the base states each width that the model states."""
    for name, width in vars(model.mup).items() if model.mup else ():
        size = getattr(model, name)
        if width is None and size is not None and name != "num_heads":
            yield (
                f"mup must state {name} of the base model, since the model does, got {name}={size} "
                f"and no mup.{name}; set it, to {size} if the base has the same"
            )
    if model.mup and model.experts is not None and model.experts.d_ff is not None:
        yield (
            f"experts.d_ff has no width of the base model in mup, got {model.experts.d_ff}; set "
            "d_ff and mup.d_ff instead"
        )
