"""Checks of a model's config that concern more than one key; `ModelKeys` bounds each key."""

from collections.abc import Iterator

from jaxformer.config.model_keys import ModelKeys
from jaxformer.config.positions import PositionsConfig, RelativeConfig
from jaxformer.config.rotary import LongropeScalingConfig, RotaryConfig

# Keys of only some architectures. No published design has cross-attention in parallel with other
# sublayers.
_ONLY_FOR = {
    "num_encoder_layers": ("encoder_decoder",),
    "source_vocab_size": ("encoder_decoder",),
    "num_classes": ("encoder", "decoder"),
    "pooling": ("encoder", "decoder"),
    "pooler": ("encoder",),
    "head_bias": ("encoder",),
    "num_token_types": ("encoder", "decoder"),
    "residual": ("encoder", "decoder"),
}


def model_mistakes(model: ModelKeys) -> Iterator[str]:
    """Yields a message for each pair of keys of a model that do not agree."""
    yield from _of_heads(model)
    yield from _of_architecture(model)
    yield from _of_embeddings(model)
    yield from _of_norms(model)
    yield from _of_layers(model)
    layers = (layer.positions for layer in (*model.first_layers, *model.layers))
    positions = [model.positions, *(scheme for scheme in layers if scheme is not None)]
    for scheme in positions:
        yield from _of_positions(model, scheme)
    yield from _of_implementation(model, positions)
    yield from _of_mup(model)


def _of_heads(model: ModelKeys) -> Iterator[str]:
    if model.head_dim is None and model.d_model % model.num_heads:
        yield (
            f"d_model must be a multiple of num_heads, {model.got('d_model', 'num_heads')}; change "
            "one of them, or set head_dim"
        )
    if model.num_heads % model.kv_heads:
        got = model.got("num_heads", "num_kv_heads")
        yield f"num_heads must be a multiple of num_kv_heads, {got}"


def _of_architecture(model: ModelKeys) -> Iterator[str]:
    for name, architectures in _ONLY_FOR.items():
        if model.sets(name) and model.architecture not in architectures:
            yield (
                f"{name} is for the architecture {' or '.join(map(repr, architectures))}, "
                f"{model.got('architecture', name)}; remove it, or change architecture"
            )
    if model.pooling == "none" and (model.architecture != "encoder" or model.num_classes is None):
        yield (
            "pooling 'none' is for an encoder that classifies each token, "
            f"{model.got('architecture', 'num_classes')}; choose another pooling"
        )
    if model.num_classes is None:
        if model.architecture == "decoder" and model.pooling != "mean":
            yield (
                f"pooling of a decoder is for one that classifies, {model.got('pooling')} without "
                "num_classes; remove it"
            )
        return
    if model.output_bias:
        yield (
            "output_bias is for the logits of tokens, which a classifier does not have, "
            f"{model.got('output_bias', 'num_classes')}; remove one of them"
        )
    if model.head_bias and model.pooler is None:
        yield (
            "head_bias of a classifier is the bias of its pooler, got head_bias=True and no "
            "pooler; set pooler, or remove head_bias"
        )


def _of_embeddings(model: ModelKeys) -> Iterator[str]:
    if model.scale_embeddings and model.embedding_scale is not None:
        yield (
            "embeddings have only one factor, got scale_embeddings=True, for sqrt(d_model), "
            f"and embedding_scale={model.embedding_scale}; remove one of them"
        )
    # A decoder projects back to the width of the table. A classifier has no logits of tokens, and
    # a separate table of the source is never the output.
    is_scored = model.num_classes is None and model.source_vocab_size is None
    projects = not is_scored or model.architecture == "decoder"
    if model.table_dim != model.d_model and model.tied_embeddings and not projects:
        yield (
            "tied embeddings must be as wide as the model, except in a decoder, "
            f"{model.got('embedding_dim', 'd_model')}; set tied_embeddings = false"
        )


def _of_norms(model: ModelKeys) -> Iterator[str]:
    if model.qk_norm_over != "head" and not model.qk_norm:
        yield (
            f"qk_norm_over is for qk_norm = true, {model.got('qk_norm_over')} without it; set "
            "qk_norm = true, or remove qk_norm_over"
        )
    if model.norm == "rms_norm" and model.norm_bias:
        yield (
            f"an RMS norm has no bias, {model.got('norm', 'norm_bias')}; remove norm_bias, or set "
            "norm = 'layer_norm'"
        )
    if model.residual != "sequential" and model.norm_position != "pre":
        yield (
            f"a parallel residual needs norm_position 'pre', "
            f"{model.got('residual', 'norm_position')}; change one of the two"
        )


def _of_layers(model: ModelKeys) -> Iterator[str]:
    first, pattern = model.first_layers, model.layers
    depths = {"num_layers": model.num_layers}
    if model.architecture == "encoder_decoder" and model.num_encoder_layers is not None:
        depths["num_encoder_layers"] = model.num_encoder_layers
    for name, depth in depths.items():
        if len(first) > depth:
            yield (
                f"first_layers must be at most as many as {name}, got {len(first)} of them and "
                f"{name}={depth}; remove some, or raise {name}"
            )
        elif len(pattern) > depth - len(first):
            yield (
                f"the pattern in layers must be at most as long as the {name} after first_layers, "
                f"got {len(pattern)} in layers, {len(first)} in first_layers and {name}={depth}; "
                f"shorten the pattern, or raise {name}"
            )
    yield from _of_attention_norms(model)
    for layer in (*first, *pattern):
        if model.positions.acts_on == "embeddings" and layer.positions is not None:
            yield (
                f"{model.positions.kind} positions are added to the embeddings, which all "
                f"layers share, got positions={model.positions.kind!r} and a layer with "
                f"positions={layer.positions.kind!r}; give every layer its own "
                "positions and set model.positions = 'none', or remove those of the layer"
            )


def _of_attention_norms(model: ModelKeys) -> Iterator[str]:
    """Where layers leave out the norm before attention."""
    for layer in model.layers:
        if layer.attention_norm is not None:
            yield (
                "attention_norm is for first_layers, since layers of a pattern have the same "
                f"parameters, got attention_norm={layer.attention_norm} in layers; move that "
                "layer to first_layers"
            )
    norms = [layer.attention_norm for layer in model.first_layers]
    if any(norm is not None for norm in norms) and model.norm_position != "pre":
        yield (
            f"attention_norm in first_layers is for norm_position 'pre', "
            f"{model.got('norm_position')}; remove attention_norm"
        )
    if len({norm is not False for norm in norms}) > 1:
        yield (
            "all first_layers must agree on attention_norm, since they have the same parameters, "
            f"got {norms}; set it in each of them, or make only those first_layers that differ"
        )
    if model.residual == "parallel_one_norm" and False in norms:
        yield (
            "attention_norm = false is not for residual 'parallel_one_norm', whose feed-forward "
            f"layer has no other norm, {model.got('first_layers')}"
        )


def _of_positions(model: ModelKeys, positions: PositionsConfig) -> Iterator[str]:
    if isinstance(positions, RotaryConfig):
        width = positions.rotary_dim or model.key_dim
        if width > model.key_dim:
            yield (
                f"rotary_dim must be at most head_dim, got rotary_dim={width} and "
                f"head_dim={model.key_dim}"
            )
        if width % 2:
            yield (
                f"rotary positions need an even head_dim, got head_dim={model.key_dim}; "
                "change d_model, num_heads or head_dim, or set rotary_dim"
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


def _of_implementation(model: ModelKeys, positions: list[PositionsConfig]) -> Iterator[str]:
    kernel = model.attention_implementation
    if kernel not in ("cudnn", "splash"):
        return
    # Other limits, such as on head widths, depend on the call, so attention itself checks them.
    is_cudnn, softcap = kernel == "cudnn", model.attention_softcap
    biases = [scheme.kind for scheme in positions if scheme.acts_on == "scores"]
    impossible = {
        model.got("dtype"): ("computes in bfloat16", is_cudnn and model.dtype == "float32"),
        model.got("attention_softcap"): ("has no soft cap", is_cudnn and softcap is not None),
        model.got("attention_sinks"): ("has no sinks", is_cudnn and model.attention_sinks),
        model.got("attention_sinks", "attention_softcap"): (
            "has no sinks beside a soft cap", model.attention_sinks and softcap is not None
        ),
        f"got positions={' and '.join(map(repr, biases))}": ("takes no bias", bool(biases)),
        model.got("dropout_rate"): ("has no dropout", model.dropout_rate > 0),
    }  # fmt: skip
    for got, (rule, applies) in impossible.items():
        if applies:
            yield (
                f"attention_implementation {kernel!r} {rule}, {got}; change this setting, or set "
                "attention_implementation to 'auto'"
            )


def _of_mup(model: ModelKeys) -> Iterator[str]:
    """Whether the base states each width that the model states."""
    if model.mup is None:
        return
    for name, width in vars(model.mup).items():
        size = getattr(model, name)
        if width is None and size is not None and name != "num_heads":
            yield (
                f"mup must state {name} of the base model, since the model does, got {name}={size} "
                f"and no mup.{name}; set it, to {size} if the base has the same"
            )
    if model.experts is not None and model.experts.d_ff is not None:
        yield (
            f"experts.d_ff has no width of the base model in mup, got {model.experts.d_ff}; set "
            "d_ff and mup.d_ff instead"
        )
