"""Checks of a model's config that concern more than one key; `ModelConfig` bounds each key."""

from typing import TYPE_CHECKING

from jaxformer.config.checks import require
from jaxformer.config.model_parts import LayerConfig
from jaxformer.config.positions import PositionsConfig, RelativeConfig
from jaxformer.config.rotary import LongropeScalingConfig, RotaryConfig
from jaxformer.errors import ConfigError

if TYPE_CHECKING:
    from jaxformer.config.model import ModelConfig

# Keys of only some architectures: their defaults, and the architectures.
_ONLY_FOR = {
    "num_encoder_layers": (None, ("encoder_decoder",)),
    "source_vocab_size": (None, ("encoder_decoder",)),
    "num_classes": (None, ("encoder", "decoder")),
    "pooling": ("mean", ("encoder", "decoder")),
    "pooler": (None, ("encoder",)),
    "head_bias": (False, ("encoder",)),
    "num_token_types": (None, ("encoder", "decoder")),
    # No published design has cross-attention in parallel with other sublayers.
    "residual": ("sequential", ("encoder", "decoder")),
}


def check_model(model: "ModelConfig") -> None:
    """Checks that the keys of a model's config agree."""
    _check_heads(model)
    _check_architecture(model)
    _check_embeddings(model)
    _check_norms(model)
    _check_layers(model)
    positions = _all_positions(model)
    for each in positions:
        _check_positions(model, each)
    _check_implementation(model, positions)
    _check_mup(model)


def _check_heads(model: "ModelConfig") -> None:
    if model.head_dim is None and model.d_model % model.num_heads:
        raise ConfigError(
            "d_model must be a multiple of num_heads, got "
            f"d_model={model.d_model} and num_heads={model.num_heads}; "
            "change one of them, or set head_dim"
        )
    require(
        model.num_heads % model.kv_heads == 0, "num_heads must be a multiple of num_kv_heads",
        num_heads=model.num_heads, num_kv_heads=model.kv_heads,
    )  # fmt: skip


def _check_architecture(model: "ModelConfig") -> None:
    for name, (default, architectures) in _ONLY_FOR.items():
        value = getattr(model, name)
        if value != default and model.architecture not in architectures:
            kinds = " or ".join(map(repr, architectures))
            raise ConfigError(
                f"{name} is for the architecture {kinds}, got architecture="
                f"{model.architecture!r} and {name}={value!r}; remove it, or change architecture"
            )
    if model.pooling == "none" and (model.architecture != "encoder" or model.num_classes is None):
        raise ConfigError(
            "pooling 'none' is for an encoder that classifies each token, got architecture="
            f"{model.architecture!r} and num_classes={model.num_classes}; choose another pooling"
        )
    if model.num_classes is None:
        if model.architecture == "decoder" and model.pooling != "mean":
            raise ConfigError(
                f"pooling of a decoder is for one that classifies, got pooling={model.pooling!r} "
                "without num_classes; remove it"
            )
        return
    if model.output_bias:
        raise ConfigError(
            "output_bias is for the logits of tokens, which a classifier does not have, got "
            f"output_bias=True and num_classes={model.num_classes}; remove one of them"
        )
    if model.head_bias and model.pooler is None:
        raise ConfigError(
            "head_bias of a classifier is the bias of its pooler, got head_bias=True and no "
            "pooler; set pooler, or remove head_bias"
        )


def _check_embeddings(model: "ModelConfig") -> None:
    if model.scale_embeddings and model.embedding_scale is not None:
        raise ConfigError(
            "embeddings have only one factor, got scale_embeddings=True, for sqrt(d_model), "
            f"and embedding_scale={model.embedding_scale}; remove one of them"
        )
    if model.table_dim == model.d_model or not model.tied_embeddings:
        return
    # A decoder projects back to the width of the table. A classifier has no logits of tokens, and
    # a separate table of the source is never the output.
    is_scored = model.num_classes is None and model.source_vocab_size is None
    if is_scored and model.architecture != "decoder":
        raise ConfigError(
            "tied embeddings must be as wide as the model, except in a decoder, got embedding_dim="
            f"{model.embedding_dim} and d_model={model.d_model}; set tied_embeddings = false"
        )


def _check_norms(model: "ModelConfig") -> None:
    if model.qk_norm_over != "head" and not model.qk_norm:
        raise ConfigError(
            f"qk_norm_over is for qk_norm = true, got qk_norm_over={model.qk_norm_over!r} without "
            "it; set qk_norm = true, or remove qk_norm_over"
        )
    if model.norm == "rms_norm" and model.norm_bias:
        raise ConfigError(
            "an RMS norm has no bias, got norm='rms_norm' and norm_bias=True; remove norm_bias, or "
            "set norm = 'layer_norm'"
        )
    if model.residual != "sequential" and model.norm_position != "pre":
        raise ConfigError(
            "a parallel residual needs norm_position 'pre', got residual="
            f"{model.residual!r} and norm_position={model.norm_position!r}; change one of the two"
        )


def _check_layers(model: "ModelConfig") -> None:
    """Checks the types and numbers of the layers that have overrides."""
    first, pattern = model.first_layers, model.layers
    for name, entries in (("first_layers", first), ("layers", pattern)):
        if not isinstance(entries, tuple) or any(type(e) is not LayerConfig for e in entries):
            raise ConfigError(
                f"{name} must be a tuple of LayerConfig, got {entries!r}; write "
                "(LayerConfig(...), ...)"
            )
    depths = {"num_layers": model.num_layers}
    if model.architecture == "encoder_decoder" and model.num_encoder_layers is not None:
        depths["num_encoder_layers"] = model.num_encoder_layers
    for name, depth in depths.items():
        if len(first) > depth:
            raise ConfigError(
                f"first_layers must be at most as many as {name}, got {len(first)} of them and "
                f"{name}={depth}; remove some, or raise {name}"
            )
        if len(pattern) > depth - len(first):
            raise ConfigError(
                f"the pattern in layers must be at most as long as the {name} after first_layers, "
                f"got {len(pattern)} in layers, {len(first)} in first_layers and {name}={depth}; "
                f"shorten the pattern, or raise {name}"
            )
    _check_attention_norms(model)
    if model.positions.acts_on == "embeddings":
        for entry in (*first, *pattern):
            if entry.positions is not None:
                raise ConfigError(
                    f"{model.positions.kind} positions are added to the embeddings, which all "
                    f"layers share, got positions={model.positions.kind!r} and a layer with "
                    f"positions={entry.positions.kind!r}; give every layer its own "
                    "positions and set model.positions = 'none', or remove those of the layer"
                )


def _check_attention_norms(model: "ModelConfig") -> None:
    """Checks where layers leave out the norm before attention."""
    for entry in model.layers:
        if entry.attention_norm is not None:
            raise ConfigError(
                "attention_norm is for first_layers, since layers of a pattern have the same "
                f"parameters, got attention_norm={entry.attention_norm} in layers; move that "
                "layer to first_layers"
            )
    given = [entry.attention_norm for entry in model.first_layers]
    if any(norm is not None for norm in given) and model.norm_position != "pre":
        raise ConfigError(
            "attention_norm in first_layers is for norm_position 'pre', got norm_position="
            f"{model.norm_position!r}; remove attention_norm"
        )
    if len({norm is not False for norm in given}) > 1:
        raise ConfigError(
            "all first_layers must agree on attention_norm, since they have the same parameters, "
            f"got {given}; set it in each of them, or make only those first_layers that differ"
        )
    if model.residual == "parallel_one_norm":
        require(
            False not in given,
            "attention_norm = false is not for residual 'parallel_one_norm', whose feed-forward "
            "layer has no other norm",
            first_layers=model.first_layers,
        )


def _all_positions(model: "ModelConfig") -> tuple[PositionsConfig, ...]:
    """Positions of the model, and of the layers that override them."""
    own = (entry.positions for entry in (*model.first_layers, *model.layers))
    return (model.positions, *(positions for positions in own if positions is not None))


def _check_positions(model: "ModelConfig", positions: PositionsConfig) -> None:
    if isinstance(positions, RotaryConfig):
        if positions.rotary_dim is not None:
            require(
                positions.rotary_dim <= model.key_dim, "rotary_dim must be at most head_dim",
                rotary_dim=positions.rotary_dim, head_dim=model.key_dim,
            )  # fmt: skip
        elif model.key_dim % 2:
            raise ConfigError(
                f"rotary positions need an even head_dim, got head_dim={model.key_dim}; "
                "change d_model, num_heads or head_dim, or set rotary_dim"
            )
        if isinstance(positions.scaling, LongropeScalingConfig):
            width, count = (
                positions.rotary_dim or model.key_dim,
                len(positions.scaling.short_factor),
            )
            require(
                2 * count == width,
                "short_factor and long_factor must have one number for each frequency, half as "
                "many as rotated features",
                numbers=count,
                features=width,
            )
    if isinstance(positions, RelativeConfig) and model.architecture != "decoder":
        require(
            positions.num_buckets >= 4 and positions.num_buckets % 2 == 0,
            "num_buckets of relative positions of an encoder must be even, and at least 4: "
            "half of them are for keys after the query",
            num_buckets=positions.num_buckets,
        )


def _check_implementation(model: "ModelConfig", positions: tuple[PositionsConfig, ...]) -> None:
    kernel = model.attention_implementation
    if kernel not in ("cudnn", "splash"):
        return
    # Other limits, such as on head widths, depend on the call, so attention itself checks them.
    biases = [each.kind for each in positions if each.acts_on == "scores"]
    impossible = {
        f"dtype={model.dtype!r}": (
            "computes in bfloat16", kernel == "cudnn" and model.dtype == "float32"
        ),
        f"attention_softcap={model.attention_softcap}": (
            "has no soft cap", kernel == "cudnn" and model.attention_softcap is not None
        ),
        "attention_sinks=True": ("has no sinks", model.attention_sinks and kernel == "cudnn"),
        f"attention_sinks=True and attention_softcap={model.attention_softcap}": (
            "has no sinks beside a soft cap",
            model.attention_sinks and model.attention_softcap is not None,
        ),
        f"positions={' and '.join(map(repr, biases))}": ("takes no bias", bool(biases)),
        f"dropout_rate={model.dropout_rate}": ("has no dropout", model.dropout_rate > 0),
    }  # fmt: skip
    for got, (rule, applies) in impossible.items():
        if applies:
            raise ConfigError(
                f"attention_implementation {kernel!r} {rule}, got {got}; change this setting, "
                "or set attention_implementation to 'auto'"
            )


def _check_mup(model: "ModelConfig") -> None:
    """Checks that the base states each width that the model states, and is a model itself."""
    if model.mup is None:
        return
    for name, width in vars(model.mup).items():
        own = getattr(model, name)
        if width is None and own is not None and name != "num_heads":
            raise ConfigError(
                f"mup must state {name} of the base model, since the model does, got {name}={own} "
                f"and no mup.{name}; set it, to {own} if the base has the same"
            )
    if model.experts is not None and model.experts.d_ff is not None:
        raise ConfigError(
            f"experts.d_ff has no width of the base model in mup, got {model.experts.d_ff}; set "
            "d_ff and mup.d_ff instead"
        )
    try:
        _ = model.base  # whose widths are checked
    except ConfigError as error:
        raise ConfigError(f"the base model of mup is impossible: {error}") from None
