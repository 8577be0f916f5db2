"""BERT, RoBERTa, DistilBERT and ModernBERT: encoders of masked words, classes or vectors."""

import dataclasses
from typing import Any

from jaxformer.config import LayerConfig, ModelConfig
from jaxformer.interop.config_fields import ConfigFields
from jaxformer.interop.family import Family, ModelKind
from jaxformer.interop.layer_fields import (
    FULL,
    SLIDING,
    layer_keys,
    positions_of_layers,
    read_layer_types,
    rotary_config,
    rotary_values,
    write_layer_types,
)
from jaxformer.interop.layouts import Layout, linear, rows_from, same
from jaxformer.interop.llama import PLAIN

__all__ = ["BERT_FAMILIES"]

_NAMES = {ours: theirs for theirs, ours in reversed([*PLAIN.items()])}


def _body(prefix: str) -> dict[str, Layout]:
    """Tensors of the layers of BERT and RoBERTa."""
    layer = prefix + "encoder.layer.{layer}."
    return {
        prefix + "embeddings.word_embeddings.weight": same("encoder/embedding/embedding"),
        prefix + "embeddings.token_type_embeddings.weight": same("encoder/token_type_embedding"),
        prefix + "embeddings.LayerNorm.weight": same("encoder/embedding_norm/scale"),
        prefix + "embeddings.LayerNorm.bias": same("encoder/embedding_norm/bias"),
        layer + "attention.self.query.weight": linear("encoder/{stack}/attention/query_kernel"),
        layer + "attention.self.query.bias": same("encoder/{stack}/attention/query_bias"),
        layer + "attention.self.key.weight": linear("encoder/{stack}/attention/key_kernel"),
        layer + "attention.self.key.bias": same("encoder/{stack}/attention/key_bias"),
        layer + "attention.self.value.weight": linear("encoder/{stack}/attention/value_kernel"),
        layer + "attention.self.value.bias": same("encoder/{stack}/attention/value_bias"),
        layer + "attention.output.dense.weight": linear("encoder/{stack}/attention/output_kernel"),
        layer + "attention.output.dense.bias": same("encoder/{stack}/attention/output_bias"),
        layer + "attention.output.LayerNorm.weight": same("encoder/{stack}/attention_norm/scale"),
        layer + "attention.output.LayerNorm.bias": same("encoder/{stack}/attention_norm/bias"),
        layer + "intermediate.dense.weight": linear("encoder/{stack}/feed_forward/up_kernel"),
        layer + "intermediate.dense.bias": same("encoder/{stack}/feed_forward/up_bias"),
        layer + "output.dense.weight": linear("encoder/{stack}/feed_forward/down_kernel"),
        layer + "output.dense.bias": same("encoder/{stack}/feed_forward/down_bias"),
        layer + "output.LayerNorm.weight": same("encoder/{stack}/feed_forward_norm/scale"),
        layer + "output.LayerNorm.bias": same("encoder/{stack}/feed_forward_norm/bias"),
    }


_BERT = _body("bert.") | {
    "bert.embeddings.position_embeddings.weight": same("encoder/positions/embedding"),
    "bert.pooler.dense.weight": linear("pooler/kernel"),
    "bert.pooler.dense.bias": same("pooler/bias"),
    "cls.predictions.transform.dense.weight": linear("kernel"),
    "cls.predictions.transform.dense.bias": same("bias"),
    "cls.predictions.transform.LayerNorm.weight": same("norm/scale"),
    "cls.predictions.transform.LayerNorm.bias": same("norm/bias"),
    "cls.predictions.bias": same("encoder/embedding/output_bias"),
    "classifier.weight": linear("class_kernel"),
    "classifier.bias": same("class_bias"),
}

# Positions start behind the padding id. A classifier's pooler is part of its head.
_ROBERTA = _body("roberta.") | {
    "roberta.embeddings.position_embeddings.weight": rows_from(2, "encoder/positions/embedding"),
    "roberta.pooler.dense.weight": linear("pooler/kernel", unless="class_kernel"),
    "roberta.pooler.dense.bias": same("pooler/bias", unless="class_kernel"),
    "lm_head.dense.weight": linear("kernel"),
    "lm_head.dense.bias": same("bias"),
    "lm_head.layer_norm.weight": same("norm/scale"),
    "lm_head.layer_norm.bias": same("norm/bias"),
    "lm_head.bias": same("encoder/embedding/output_bias"),
    "classifier.dense.weight": linear("pooler/kernel", where="class_kernel"),
    "classifier.dense.bias": same("pooler/bias", where="class_kernel"),
    "classifier.out_proj.weight": linear("class_kernel"),
    "classifier.out_proj.bias": same("class_bias"),
}

_D = "distilbert.transformer.layer.{layer}."
_DISTILBERT = {
    "distilbert.embeddings.word_embeddings.weight": same("encoder/embedding/embedding"),
    "distilbert.embeddings.position_embeddings.weight": same("encoder/positions/embedding"),
    "distilbert.embeddings.LayerNorm.weight": same("encoder/embedding_norm/scale"),
    "distilbert.embeddings.LayerNorm.bias": same("encoder/embedding_norm/bias"),
    _D + "attention.q_lin.weight": linear("encoder/{stack}/attention/query_kernel"),
    _D + "attention.q_lin.bias": same("encoder/{stack}/attention/query_bias"),
    _D + "attention.k_lin.weight": linear("encoder/{stack}/attention/key_kernel"),
    _D + "attention.k_lin.bias": same("encoder/{stack}/attention/key_bias"),
    _D + "attention.v_lin.weight": linear("encoder/{stack}/attention/value_kernel"),
    _D + "attention.v_lin.bias": same("encoder/{stack}/attention/value_bias"),
    _D + "attention.out_lin.weight": linear("encoder/{stack}/attention/output_kernel"),
    _D + "attention.out_lin.bias": same("encoder/{stack}/attention/output_bias"),
    _D + "sa_layer_norm.weight": same("encoder/{stack}/attention_norm/scale"),
    _D + "sa_layer_norm.bias": same("encoder/{stack}/attention_norm/bias"),
    _D + "ffn.lin1.weight": linear("encoder/{stack}/feed_forward/up_kernel"),
    _D + "ffn.lin1.bias": same("encoder/{stack}/feed_forward/up_bias"),
    _D + "ffn.lin2.weight": linear("encoder/{stack}/feed_forward/down_kernel"),
    _D + "ffn.lin2.bias": same("encoder/{stack}/feed_forward/down_bias"),
    _D + "output_layer_norm.weight": same("encoder/{stack}/feed_forward_norm/scale"),
    _D + "output_layer_norm.bias": same("encoder/{stack}/feed_forward_norm/bias"),
    "vocab_transform.weight": linear("kernel"),
    "vocab_transform.bias": same("bias"),
    "vocab_layer_norm.weight": same("norm/scale"),
    "vocab_layer_norm.bias": same("norm/bias"),
    "vocab_projector.bias": same("encoder/embedding/output_bias"),
    "pre_classifier.weight": linear("pooler/kernel"),
    "pre_classifier.bias": same("pooler/bias"),
    "classifier.weight": linear("class_kernel"),
    "classifier.bias": same("class_bias"),
}

_M = "model.layers.{layer}."
# The first half of Wi is activated, the second is multiplied by it.
_MODERNBERT: dict[str, Layout | tuple[Layout, ...]] = {
    "model.embeddings.tok_embeddings.weight": same("encoder/embedding/embedding"),
    "model.embeddings.norm.weight": same("encoder/embedding_norm/scale"),
    "model.embeddings.norm.bias": same("encoder/embedding_norm/bias"),
    _M + "attn_norm.weight": same("encoder/{stack}/attention_norm/scale"),
    _M + "attn_norm.bias": same("encoder/{stack}/attention_norm/bias"),
    _M + "attn.Wqkv.weight": linear(
        "encoder/{stack}/attention/query_kernel", "encoder/{stack}/attention/key_kernel",
        "encoder/{stack}/attention/value_kernel",
    ),
    _M + "attn.Wqkv.bias": same(
        "encoder/{stack}/attention/query_bias", "encoder/{stack}/attention/key_bias",
        "encoder/{stack}/attention/value_bias",
    ),
    _M + "attn.Wo.weight": linear("encoder/{stack}/attention/output_kernel"),
    _M + "attn.Wo.bias": same("encoder/{stack}/attention/output_bias"),
    _M + "mlp_norm.weight": same("encoder/{stack}/feed_forward_norm/scale"),
    _M + "mlp_norm.bias": same("encoder/{stack}/feed_forward_norm/bias"),
    _M + "mlp.Wi.weight": linear(
        "encoder/{stack}/feed_forward/gate_kernel", "encoder/{stack}/feed_forward/up_kernel"
    ),
    _M + "mlp.Wi.bias": same(
        "encoder/{stack}/feed_forward/gate_bias", "encoder/{stack}/feed_forward/up_bias"
    ),
    _M + "mlp.Wo.weight": linear("encoder/{stack}/feed_forward/down_kernel"),
    _M + "mlp.Wo.bias": same("encoder/{stack}/feed_forward/down_bias"),
    "model.final_norm.weight": same("encoder/final_norm/scale"),
    "model.final_norm.bias": same("encoder/final_norm/bias"),
    # Of masked words, or of classes.
    "head.dense.weight": (linear("kernel"), linear("pooler/kernel")),
    "head.dense.bias": (same("bias"), same("pooler/bias")),
    "head.norm.weight": (same("norm/scale"), same("pooler/norm/scale")),
    "head.norm.bias": (same("norm/bias"), same("pooler/norm/bias")),
    "decoder.bias": same("encoder/embedding/output_bias"),
    "classifier.weight": linear("class_kernel"),
    "classifier.bias": same("class_bias"),
}  # fmt: skip


def _head(fields: ConfigFields, kind: ModelKind, pooler: str | None) -> dict[str, Any]:
    """What a head adds to the body: classes, or biases of masked words' logits."""
    fields.skip("classifier_dropout")
    if kind == "masked":
        return {"head_bias": True, "output_bias": True}
    values: dict[str, Any] = {"pooling": "first", "pooler": pooler}
    if pooler is not None:
        values["head_bias"] = True
    if kind == "classifier":
        values["num_classes"] = fields.num_classes()
    return values


def _read_bert(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.skip("hidden_dropout_prob", "attention_probs_dropout_prob")
    fields.require("is_decoder", False)
    fields.require("position_embedding_type", "absolute")
    fields.require("tie_word_embeddings", True)
    return _head(fields, kind, "tanh") | {
        "architecture": "encoder",
        "vocab_size": fields.take("vocab_size", int),
        "max_len": fields.take("max_position_embeddings", int, 512),
        "num_layers": fields.take("num_hidden_layers", int),
        "num_heads": fields.take("num_attention_heads", int),
        "d_model": fields.take("hidden_size", int),
        "d_ff": fields.take("intermediate_size", int),
        "num_token_types": fields.take("type_vocab_size", int, 2),
        "positions": "learned",
        "norm_position": "post",
        "norm_eps": float(fields.take("layer_norm_eps", float, 1e-12)),
        "embedding_norm": True,
        "activation": fields.choose("hidden_act", PLAIN, "gelu"),
    }


def _require_gelu(fields: ConfigFields, name: str, kind: ModelKind) -> None:
    """The head of masked words has the activation of the layers, which here must be GELU."""
    if kind == "masked":
        fields.require(name, "gelu")


def _read_plain_bert(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    _require_gelu(fields, "hidden_act", kind)
    return _read_bert(fields, kind)


def _read_roberta(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.require("pad_token_id", 1)  # positions start behind it
    values = _read_bert(fields, kind)
    return values | {"max_len": values["max_len"] - 2}


def _write_bert(model: ModelConfig) -> dict[str, Any]:
    return {
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_len,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "hidden_size": model.d_model,
        "intermediate_size": model.ff_dim,
        "type_vocab_size": model.num_token_types or 1,
        "layer_norm_eps": model.norm_eps,
        "hidden_act": _NAMES.get(model.activation),
        "tie_word_embeddings": model.tied_embeddings,
        **_labels(model),
    }


def _write_roberta(model: ModelConfig) -> dict[str, Any]:
    longer = {"max_position_embeddings": model.max_len + 2, "pad_token_id": 1}
    return _write_bert(model) | longer


def _labels(model: ModelConfig) -> dict[str, Any]:
    if model.num_classes is None:
        return {}
    names = [f"LABEL_{index}" for index in range(model.num_classes)]
    return {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }


def _read_distilbert(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    _require_gelu(fields, "activation", kind)
    fields.skip(
        "dropout", "attention_dropout", "qa_dropout", "seq_classif_dropout",
        # How the table of positions was initialized, which is in the file.
        "sinusoidal_pos_embds", "tie_weights_", "output_past",
    )  # fmt: skip
    fields.require("tie_word_embeddings", True)
    return _head(fields, kind, "relu" if kind == "classifier" else None) | {
        "architecture": "encoder",
        "vocab_size": fields.take("vocab_size", int),
        "max_len": fields.take("max_position_embeddings", int, 512),
        "num_layers": fields.take("n_layers", int),
        "num_heads": fields.take("n_heads", int),
        "d_model": fields.take("dim", int),
        "d_ff": fields.take("hidden_dim", int),
        "positions": "learned",
        "norm_position": "post",
        "norm_eps": 1e-12,
        "embedding_norm": True,
        "activation": fields.choose("activation", PLAIN, "gelu"),
    }


def _write_distilbert(model: ModelConfig) -> dict[str, Any]:
    return {
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_len,
        "n_layers": model.num_layers,
        "n_heads": model.num_heads,
        "dim": model.d_model,
        "hidden_dim": model.ff_dim,
        "activation": _NAMES.get(model.activation),
        "tie_word_embeddings": model.tied_embeddings,
        **_labels(model),
    }


_MODERNBERT_ACTS = {"gelu": "geglu", "silu": "swiglu", "gelu_pytorch_tanh": "geglu_tanh"}


def _read_modernbert(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """Every third layer attends to all; a window of W has W // 2 tokens on each side."""
    fields.skip(
        "attention_dropout", "mlp_dropout", "embedding_dropout", "classifier_dropout",
        "initializer_cutoff_factor", "deterministic_flash_attn", "reference_compile",
        "repad_logits_with_grad", "sparse_pred_ignore_index", "sparse_prediction",
        "position_embedding_type",
        "layer_norm_eps",  # in published files, beside norm_eps, which alone is read
    )  # fmt: skip
    fields.require("tie_word_embeddings", True)
    fields.skip("classifier_activation")  # of a head
    if kind != "pooled":
        fields.require("classifier_activation", "gelu")
    width, heads = fields.take("hidden_size", int), fields.take("num_attention_heads", int)
    longest, depth = (
        fields.take("max_position_embeddings", int, 8192),
        fields.take("num_hidden_layers", int),
    )
    every = fields.take("global_attn_every_n_layers", int, 3)
    given = fields.take("rope_parameters", dict, {})
    bases = {
        FULL: fields.take("global_rope_theta", float, 160_000.0),
        SLIDING: fields.take("local_rope_theta", float, 10_000.0),
    }
    wide, local = (
        rotary_config(fields, {"rope_theta": base, **given.get(name, {})}, width // heads, longest)
        for name, base in bases.items()
    )
    size = fields.take("local_attention", int, 128) // 2
    near = read_layer_types(fields, [layer % every != 0 for layer in range(depth)])
    windowed = LayerConfig(local_window_size=size, positions=local)
    layers = [windowed if is_near else LayerConfig() for is_near in near]
    layers[0] = dataclasses.replace(layers[0], attention_norm=False)
    bias = fields.take("classifier_bias", bool, False)
    decoder_bias = fields.take("decoder_bias", bool, True)
    pooling = fields.choose("classifier_pooling", {"cls": "first", "mean": "mean"}, "cls")
    head: dict[str, Any] = {"pooling": pooling}
    if kind == "masked":
        head = {"head_bias": bias, "output_bias": decoder_bias}
    elif kind == "classifier":
        head |= {"pooler": "gelu_norm", "head_bias": bias, "num_classes": fields.num_classes()}
    attention_bias = fields.take("attention_bias", bool, False)
    return layer_keys(wide, layers) | head | {
        "architecture": "encoder",
        "vocab_size": fields.take("vocab_size", int),
        "max_len": longest,
        "num_layers": depth,
        "num_heads": heads,
        "d_model": width,
        "d_ff": fields.take("intermediate_size", int),
        "norm_eps": float(fields.take("norm_eps", float, 1e-5)),
        "embedding_norm": True,
        "activation": fields.choose("hidden_activation", _MODERNBERT_ACTS, "gelu"),
        "qkv_bias": attention_bias,
        "attention_output_bias": attention_bias,
        "feed_forward_bias": fields.take("mlp_bias", bool, False),
        "norm_bias": fields.take("norm_bias", bool, False),
    }  # fmt: skip


def _write_modernbert(model: ModelConfig) -> dict[str, Any]:
    acts = {ours: theirs for theirs, ours in _MODERNBERT_ACTS.items()}
    types = write_layer_types(model)
    by_type = {
        name: rotary_values(scheme, model.key_dim)
        for name, scheme in zip(types["layer_types"], positions_of_layers(model), strict=True)
    }
    default = next(iter(by_type.values()))
    window = types["sliding_window"]
    return {
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_len,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "hidden_size": model.d_model,
        "intermediate_size": model.ff_dim,
        "layer_types": types["layer_types"],
        "local_attention": 128 if window is None else 2 * (window - 1),
        "rope_parameters": {FULL: default, SLIDING: default} | by_type,
        "norm_eps": model.norm_eps,
        "norm_bias": model.has_bias("norm"),
        "attention_bias": model.has_bias("qkv"),
        "mlp_bias": model.has_bias("feed_forward"),
        "hidden_activation": acts.get(model.activation, "gelu"),
        "classifier_pooling": "cls" if model.pooling == "first" else "mean",
        "classifier_bias": model.head_bias,
        "decoder_bias": model.output_bias,
        "tie_word_embeddings": model.tied_embeddings,
        **_labels(model),
    }


def _classes(name: str) -> dict[str, ModelKind]:
    return {
        f"{name}ForMaskedLM": "masked",
        f"{name}ForSequenceClassification": "classifier",
        f"{name}Model": "pooled",
    }


BERT_FAMILIES = (
    Family(
        model_type="bert", classes=_classes("Bert") | {"BertForPreTraining": "masked"},
        read=_read_plain_bert, write=_write_bert, tensors=_BERT, prefix="bert.",
        # Pooler and next-sentence head of a file that was trained on both tasks.
        ignored=(
            "bert.embeddings.position_ids", "bert.pooler.dense.weight", "bert.pooler.dense.bias",
            "cls.seq_relationship.weight", "cls.seq_relationship.bias",
        ),
        copies={
            "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        auto_class="AutoModelForMaskedLM",
    ),
    Family(
        model_type="roberta", classes=_classes("Roberta"), read=_read_roberta,
        write=_write_roberta, tensors=_ROBERTA, prefix="roberta.",
        ignored=(
            "roberta.embeddings.position_ids", "roberta.pooler.dense.weight",
            "roberta.pooler.dense.bias",
        ),
        copies={
            "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
        auto_class="AutoModelForMaskedLM",
    ),
    Family(
        model_type="distilbert", classes=_classes("DistilBert"), read=_read_distilbert,
        write=_write_distilbert, tensors=_DISTILBERT, prefix="distilbert.",
        ignored=("distilbert.embeddings.position_ids",),
        copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
        auto_class="AutoModelForMaskedLM",
    ),
    Family(
        model_type="modernbert", classes=_classes("ModernBert"), read=_read_modernbert,
        write=_write_modernbert, tensors=_MODERNBERT, prefix="model.",
        copies={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
        auto_class="AutoModelForMaskedLM",
    ),
)  # fmt: skip
