"""BERT, RoBERTa and relatives, ELECTRA, DistilBERT, ModernBERT: encoders with several heads."""

from collections.abc import Callable
from typing import Any

from jaxformer.config import ModelConfig
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import Family, ModelKind
from jaxformer.interop.conversion.fields import (
    COMMON,
    GATED,
    TIED,
    Field,
    FieldTable,
    Values,
    activation,
    biases,
    only,
)
from jaxformer.interop.conversion.layers import (
    FULL,
    SLIDING,
    read_windows,
    write_layer_types,
    write_rotary_by_type,
)
from jaxformer.interop.conversion.layouts import Layout, block, dense, linear, norm, same

_S = "encoder/{stack}"  # path of the parameters of a layer


def _body(prefix: str, *, skipped_rows: int = 0) -> dict[str, Layout]:
    """Tensors of BERT, RoBERTa and ELECTRA, which differ only in the prefix."""
    return {
        prefix + "embeddings.word_embeddings.weight": same("encoder/embedding/embedding"),
        prefix + "embeddings.position_embeddings.weight": same(
            "encoder/positions/embedding", skipped_rows=skipped_rows
        ),
        prefix + "embeddings.token_type_embeddings.weight": same("encoder/token_type_embedding"),
        **norm(prefix + "embeddings.LayerNorm", "encoder/embedding_norm"),
        **block(
            prefix + "encoder.layer.{layer}.", _S,
            norms="attention.output.LayerNorm output.LayerNorm",
            attention="attention self.query self.key self.value output.dense",
            feed_forward="intermediate.dense output.dense",
        ),
    }  # fmt: skip


_BERT = _body("bert.") | {
    **dense("bert.pooler.dense", "pooler/"),
    **dense("cls.predictions.transform.dense", ""),
    **norm("cls.predictions.transform.LayerNorm", "norm"),
    "cls.predictions.bias": same("encoder/embedding/output_bias"),
    **dense("classifier", "class"),
}


# In a classifier, the pooler is part of the head.
_ROBERTA = _body("roberta.", skipped_rows=2) | {
    **dense("roberta.pooler.dense", "pooler/", when=lambda model: model.num_classes is None),
    **dense("lm_head.dense", ""),
    **norm("lm_head.layer_norm", "norm"),
    "lm_head.bias": same("encoder/embedding/output_bias"),
    **dense("classifier.dense", "pooler/", when=lambda model: model.num_classes is not None),
    **dense("classifier.out_proj", "class", when=lambda model: model.pooling != "none"),
    **dense("classifier", "class", when=lambda model: model.pooling == "none"),  # for every token
}

_ELECTRA = _body("electra.") | {
    **dense("generator_predictions.dense", ""),
    **norm("generator_predictions.LayerNorm", "norm"),
    "generator_lm_head.bias": same("encoder/embedding/output_bias"),
    **dense("classifier.dense", "pooler/"),
    **dense("classifier.out_proj", "class"),
}

_DISTILBERT = {
    "distilbert.embeddings.word_embeddings.weight": same("encoder/embedding/embedding"),
    "distilbert.embeddings.position_embeddings.weight": same("encoder/positions/embedding"),
    **norm("distilbert.embeddings.LayerNorm", "encoder/embedding_norm"),
    **block(
        "distilbert.transformer.layer.{layer}.", _S,
        norms="sa_layer_norm output_layer_norm", attention="attention q_lin k_lin v_lin out_lin",
        feed_forward="ffn.lin1 ffn.lin2",
    ),
    **dense("vocab_transform", ""),
    **norm("vocab_layer_norm", "norm"),
    "vocab_projector.bias": same("encoder/embedding/output_bias"),
    **dense("pre_classifier", "pooler/"),
    **dense("classifier", "class"),
}  # fmt: skip


def _family(
    model_type: str, name: str, *, more: dict[str, ModelKind] | None = None, **settings: Any
) -> Family:
    """A family of encoders whose classes begin with `name`; settings as in `Family`."""
    classes: dict[str, ModelKind] = {
        f"{name}ForMaskedLM": "masked",
        f"{name}ForSequenceClassification": "classifier",
        f"{name}ForTokenClassification": "token_classifier",
        f"{name}Model": "pooled",
    }
    return Family(model_type=model_type, classes=classes | (more or {}), **settings)


def _head(
    classifier: str, base: str | None = None, gelu: str | None = None
) -> Callable[[ConfigFields, ModelKind, Values], Values]:
    """Reader of the head: biases of masked tokens' logits; else pooling, with these poolers."""
    # The head for masked tokens has the activation of the layers, which the field `gelu` names.

    def read(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
        if kind == "masked":
            if gelu is not None:
                fields.require(gelu, "gelu")
            return {"head_bias": True, "output_bias": True}
        if kind == "token_classifier":
            return {"pooling": "none"}
        pooler = classifier if kind == "classifier" else base
        pooling: Values = {"pooling": "first", "pooler": pooler}
        return pooling if pooler is None else pooling | {"head_bias": True}

    return read


_BERT_FIELDS: FieldTable = {
    **TIED,
    "is_decoder": only(False),
    "position_embedding_type": only("absolute"),
    **COMMON,
    "max_position_embeddings": ("max_len", 512),
    "intermediate_size": "d_ff",
    "type_vocab_size": ("num_token_types", 2),
    "layer_norm_eps": ("norm_eps", 1e-12),
    "hidden_act": activation("gelu"),
}
_FIXED = {
    "architecture": "encoder", "positions": "learned", "norm_position": "post",
    "embedding_norm": True,
}  # fmt: skip


def _roberta_family(model_type: str, name: str) -> Family:
    """RoBERTa, or a family that differs from it only in names and tokenizer."""
    return _family(
        model_type, name,
        fields={
            **_BERT_FIELDS,
            "pad_token_id": only(1, write=lambda _: 1),  # positions start after it
            "max_position_embeddings": Field(
                lambda fields, name, _: {"max_len": fields.take(name, int, 512) - 2},
                lambda model: model.max_len + 2,
            ),
        },
        fixed=_FIXED, special_read=_head("tanh", "tanh"),
        tensors=_ROBERTA, prefix="roberta.",
        copies={
            "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
    )  # fmt: skip


_LAYER = "model.layers.{layer}."
# The first half of Wi is the gate, the second the up projection. `head` is for masked tokens or for
# classes.
_MODERNBERT: dict[str, Layout | tuple[Layout, ...]] = {
    "model.embeddings.tok_embeddings.weight": same("encoder/embedding/embedding"),
    **norm("model.embeddings.norm", "encoder/embedding_norm"),
    **block(_LAYER, _S, norms="attn_norm mlp_norm", attention="attn Wqkv Wo"),
    **dense(_LAYER + "mlp.Wi", _S + "/feed_forward/gate", _S + "/feed_forward/up"),
    **dense(_LAYER + "mlp.Wo", _S + "/feed_forward/down"),
    **norm("model.final_norm", "encoder/final_norm"),
    "head.dense.weight": (linear("kernel"), linear("pooler/kernel")),
    "head.dense.bias": (same("bias"), same("pooler/bias")),
    "head.norm.weight": (same("norm/scale"), same("pooler/norm/scale")),
    "head.norm.bias": (same("norm/bias"), same("pooler/norm/bias")),
    "decoder.bias": same("encoder/embedding/output_bias"),
    **dense("classifier", "class"),
}


def _read_modernbert(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """Every third layer attends to all tokens; a window of W has W // 2 on each side."""
    every = fields.take("global_attn_every_n_layers", int, 3)
    bases = {
        FULL: fields.take("global_rope_theta", float, 160_000.0),
        SLIDING: fields.take("local_rope_theta", float, 10_000.0),
    }
    both_sides = fields.take("local_attention", int, 128)
    size = fields.take("sliding_window", int, both_sides // 2)
    return _read_modernbert_head(fields, kind) | read_windows(
        fields, values, lambda layer: layer % every != 0, size + 1, bases=bases, scaled=bases,
        attention_norm=False,
    )  # fmt: skip


def _read_modernbert_head(fields: ConfigFields, kind: ModelKind) -> Values:
    if kind != "pooled":
        fields.require("classifier_activation", "gelu")
    bias = fields.take("classifier_bias", bool, False)
    decoder_bias = fields.take("decoder_bias", bool, True)
    pooling = fields.choose("classifier_pooling", {"cls": "first", "mean": "mean"}, "cls")
    if kind == "masked":
        return {"head_bias": bias, "output_bias": decoder_bias}
    if kind == "pooled":
        return {"pooling": pooling}
    return {
        "pooling": "none" if kind == "token_classifier" else pooling,
        "pooler": "gelu_norm",
        "head_bias": bias,
    }


def _write_modernbert(model: ModelConfig) -> dict[str, Any]:
    types = write_layer_types(model)
    window = types["sliding_window"]
    return {
        "layer_types": types["layer_types"],
        "local_attention": 128 if window is None else 2 * (window - 1),
        "rope_parameters": write_rotary_by_type(model),
        "classifier_pooling": "cls" if model.pooling == "first" else "mean",
        "classifier_bias": model.head_bias,
        "decoder_bias": model.output_bias,
    }


BERT_FAMILIES = (
    _family(
        "bert", "Bert", more={"BertForPreTraining": "masked"}, fields=_BERT_FIELDS, fixed=_FIXED,
        special_read=_head("tanh", "tanh", gelu="hidden_act"), tensors=_BERT, prefix="bert.",
        copies={
            "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
    ),
    _roberta_family("roberta", "Roberta"),
    _roberta_family("xlm-roberta", "XLMRoberta"),
    _roberta_family("camembert", "Camembert"),
    _family(
        # The discriminator is read without its head.
        "electra", "Electra", more={"ElectraForPreTraining": "pooled"},
        fields={
            **_BERT_FIELDS,
            # A norm before the projection of narrower embeddings is not supported.
            "embedding_size": only(
                lambda values: values["d_model"], write=lambda model: model.d_model
            ),
        },
        fixed=_FIXED, special_read=_head("gelu"),
        tensors=_ELECTRA, prefix="electra.",
        copies={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    ),
    _family(
        "distilbert", "DistilBert",
        fields={
            **TIED,
            "vocab_size": "vocab_size",
            "max_position_embeddings": ("max_len", 512),
            "n_layers": "num_layers",
            "n_heads": "num_heads",
            "dim": "d_model",
            "hidden_dim": "d_ff",
            "activation": activation("gelu"),
        },
        fixed=_FIXED | {"norm_eps": 1e-12},
        special_read=_head("relu", gelu="activation"),
        tensors=_DISTILBERT, prefix="distilbert.",
        copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    ),
    _family(
        "modernbert", "ModernBert",
        fields={
            **TIED,
            **COMMON,
            "max_position_embeddings": ("max_len", 8192),
            "intermediate_size": "d_ff",
            "norm_eps": ("norm_eps", 1e-5),
            "hidden_activation": activation("gelu", GATED),
            "attention_bias": biases(False),
            "mlp_bias": ("feed_forward_bias", False),
            "norm_bias": ("norm_bias", False),
        },
        fixed={"architecture": "encoder", "embedding_norm": True},
        special_read=_read_modernbert, special_write=_write_modernbert,
        tensors=_MODERNBERT, prefix="model.",
        copies={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    ),
)  # fmt: skip
