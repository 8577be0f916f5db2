"""BERT, RoBERTa and relatives, ELECTRA, DistilBERT: encoders for masked tokens and classes."""

from typing import Any

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.interop.conversion.activations import PLAIN, name_of
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import Family, ModelKind
from jaxformer.interop.conversion.layouts import Layout, dense, norm, rows_from, same
from jaxformer.interop.conversion.plain_fields import PlainFields, read_plain, write_plain

__all__ = ["BERT_FAMILIES", "encoder_classes", "write_labels"]

_S = "encoder/{stack}/"  # paths of the parameters of a layer


def _body(prefix: str) -> dict[str, Layout]:
    """Tensors of BERT and RoBERTa, which differ only in the prefix."""
    layer = prefix + "encoder.layer.{layer}."
    return {
        prefix + "embeddings.word_embeddings.weight": same("encoder/embedding/embedding"),
        prefix + "embeddings.token_type_embeddings.weight": same("encoder/token_type_embedding"),
        **norm(prefix + "embeddings.LayerNorm", "encoder/embedding_norm"),
        **dense(layer + "attention.self.query", _S + "attention/query"),
        **dense(layer + "attention.self.key", _S + "attention/key"),
        **dense(layer + "attention.self.value", _S + "attention/value"),
        **dense(layer + "attention.output.dense", _S + "attention/output"),
        **norm(layer + "attention.output.LayerNorm", _S + "attention_norm"),
        **dense(layer + "intermediate.dense", _S + "feed_forward/up"),
        **dense(layer + "output.dense", _S + "feed_forward/down"),
        **norm(layer + "output.LayerNorm", _S + "feed_forward_norm"),
    }


_BERT = _body("bert.") | {
    "bert.embeddings.position_embeddings.weight": same("encoder/positions/embedding"),
    **dense("bert.pooler.dense", "pooler/"),
    **dense("cls.predictions.transform.dense", ""),
    **norm("cls.predictions.transform.LayerNorm", "norm"),
    "cls.predictions.bias": same("encoder/embedding/output_bias"),
    **dense("classifier", "class"),
}

# In a classifier, the pooler is part of the head.
_ROBERTA = _body("roberta.") | {
    "roberta.embeddings.position_embeddings.weight": rows_from(2, "encoder/positions/embedding"),
    **dense("roberta.pooler.dense", "pooler/", unless="class_kernel"),
    **dense("lm_head.dense", ""),
    **norm("lm_head.layer_norm", "norm"),
    "lm_head.bias": same("encoder/embedding/output_bias"),
    **dense("classifier.dense", "pooler/", where="class_kernel"),
    **dense("classifier.out_proj", "class", where="pooler/kernel"),
    **dense("classifier", "class", unless="pooler/kernel"),  # for every token
}

_ELECTRA = _body("electra.") | {
    "electra.embeddings.position_embeddings.weight": same("encoder/positions/embedding"),
    **dense("generator_predictions.dense", ""),
    **norm("generator_predictions.LayerNorm", "norm"),
    "generator_lm_head.bias": same("encoder/embedding/output_bias"),
    **dense("classifier.dense", "pooler/"),
    **dense("classifier.out_proj", "class"),
}

_D = "distilbert.transformer.layer.{layer}."
_DISTILBERT = {
    "distilbert.embeddings.word_embeddings.weight": same("encoder/embedding/embedding"),
    "distilbert.embeddings.position_embeddings.weight": same("encoder/positions/embedding"),
    **norm("distilbert.embeddings.LayerNorm", "encoder/embedding_norm"),
    **dense(_D + "attention.q_lin", _S + "attention/query"),
    **dense(_D + "attention.k_lin", _S + "attention/key"),
    **dense(_D + "attention.v_lin", _S + "attention/value"),
    **dense(_D + "attention.out_lin", _S + "attention/output"),
    **norm(_D + "sa_layer_norm", _S + "attention_norm"),
    **dense(_D + "ffn.lin1", _S + "feed_forward/up"),
    **dense(_D + "ffn.lin2", _S + "feed_forward/down"),
    **norm(_D + "output_layer_norm", _S + "feed_forward_norm"),
    **dense("vocab_transform", ""),
    **norm("vocab_layer_norm", "norm"),
    "vocab_projector.bias": same("encoder/embedding/output_bias"),
    **dense("pre_classifier", "pooler/"),
    **dense("classifier", "class"),
}


def _head(fields: ConfigFields, kind: ModelKind, pooler: str | None) -> dict[str, Any]:
    """Settings of a head: classes, or biases of masked tokens' logits."""
    fields.skip("classifier_dropout")
    if kind == "masked":
        return {"head_bias": True, "output_bias": True}
    if kind == "token_classifier":
        return {"pooling": "none", "num_classes": fields.num_classes()}
    values: dict[str, Any] = {"pooling": "first", "pooler": pooler}
    if pooler is not None:
        values["head_bias"] = True
    if kind == "classifier":
        values["num_classes"] = fields.num_classes()
    return values


def write_labels(model: ModelConfig) -> dict[str, Any]:
    """Fields that name the classes of a classifier; empty for other models."""
    if model.num_classes is None:
        return {}
    names = [f"LABEL_{index}" for index in range(model.num_classes)]
    return {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }


_BERT_FIELDS: PlainFields = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": ("max_len", 512),
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "d_model",
    "intermediate_size": "d_ff",
    "type_vocab_size": ("num_token_types", 2),
    "layer_norm_eps": ("norm_eps", 1e-12),
}


def _read_bert(
    fields: ConfigFields, kind: ModelKind, pooler: str | None = "tanh"
) -> dict[str, Any]:
    fields.skip("hidden_dropout_prob", "attention_probs_dropout_prob")
    fields.require("is_decoder", False)
    fields.require("position_embedding_type", "absolute")
    fields.require("tie_word_embeddings", True)
    return _head(fields, kind, pooler) | read_plain(fields, _BERT_FIELDS) | {
        "architecture": "encoder",
        "positions": "learned",
        "norm_position": "post",
        "embedding_norm": True,
        "activation": fields.choose("hidden_act", PLAIN, "gelu"),
    }  # fmt: skip


def _require_gelu(fields: ConfigFields, name: str, kind: ModelKind) -> None:
    """The head for masked tokens uses the activation of the layers, which must be GELU here."""
    if kind == "masked":
        fields.require(name, "gelu")


def _read_plain_bert(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    _require_gelu(fields, "hidden_act", kind)
    return _read_bert(fields, kind)


def _read_roberta(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.require("pad_token_id", 1)  # positions start after it
    values = _read_bert(fields, kind)
    return values | {"max_len": values["max_len"] - 2}


def _read_electra(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """BERT with a pooler only in classifiers; embeddings must be as wide as the layers."""
    fields.skip("summary_last_dropout")
    width = fields.take("embedding_size", int)
    values = _read_bert(fields, kind, "gelu" if kind == "classifier" else None)
    if width != values["d_model"]:
        raise ConfigError(
            f"embedding_size must be hidden_size, got {width} and {values['d_model']}: a norm "
            "before the projection of the embeddings is not supported"
        )
    return values


def _write_bert(model: ModelConfig) -> dict[str, Any]:
    return write_plain(model, _BERT_FIELDS) | {
        "type_vocab_size": model.num_token_types or 1,
        "hidden_act": name_of(model.activation),
        "tie_word_embeddings": model.tied_embeddings,
        **write_labels(model),
    }


def _write_roberta(model: ModelConfig) -> dict[str, Any]:
    longer = {"max_position_embeddings": model.max_len + 2, "pad_token_id": 1}
    return _write_bert(model) | longer


def _write_electra(model: ModelConfig) -> dict[str, Any]:
    return _write_bert(model) | {"embedding_size": model.d_model}


_DISTILBERT_FIELDS: PlainFields = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": ("max_len", 512),
    "n_layers": "num_layers",
    "n_heads": "num_heads",
    "dim": "d_model",
    "hidden_dim": "d_ff",
}


def _read_distilbert(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.alias(hidden_size="dim", num_attention_heads="n_heads", num_hidden_layers="n_layers")
    _require_gelu(fields, "activation", kind)
    fields.skip(
        "dropout", "attention_dropout", "qa_dropout", "seq_classif_dropout",
        # Only says how the position table was initialized; the file has the table.
        "sinusoidal_pos_embds", "tie_weights_", "output_past",
    )  # fmt: skip
    fields.require("tie_word_embeddings", True)
    pooler = "relu" if kind == "classifier" else None
    return _head(fields, kind, pooler) | read_plain(fields, _DISTILBERT_FIELDS) | {
        "architecture": "encoder",
        "positions": "learned",
        "norm_position": "post",
        "norm_eps": 1e-12,
        "embedding_norm": True,
        "activation": fields.choose("activation", PLAIN, "gelu"),
    }  # fmt: skip


def _write_distilbert(model: ModelConfig) -> dict[str, Any]:
    return write_plain(model, _DISTILBERT_FIELDS) | {
        "activation": name_of(model.activation),
        "tie_word_embeddings": model.tied_embeddings,
        **write_labels(model),
    }


def encoder_classes(name: str) -> dict[str, ModelKind]:
    """`Family.classes` of a family of encoders."""
    return {
        f"{name}ForMaskedLM": "masked",
        f"{name}ForSequenceClassification": "classifier",
        f"{name}ForTokenClassification": "token_classifier",
        f"{name}Model": "pooled",
    }


def _roberta_family(model_type: str, name: str) -> Family:
    """RoBERTa, or a family that differs from it only in names and tokenizer."""
    return Family(
        model_type=model_type, classes=encoder_classes(name), read=_read_roberta,
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
    )  # fmt: skip


BERT_FAMILIES = (
    Family(
        model_type="bert", classes=encoder_classes("Bert") | {"BertForPreTraining": "masked"},
        read=_read_plain_bert, write=_write_bert, tensors=_BERT, prefix="bert.",
        # Pooler and next-sentence head of models trained on both tasks.
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
    _roberta_family("roberta", "Roberta"),
    _roberta_family("xlm-roberta", "XLMRoberta"),
    _roberta_family("camembert", "Camembert"),
    Family(
        model_type="electra",
        # The discriminator is read without its head.
        classes=encoder_classes("Electra") | {"ElectraForPreTraining": "pooled"},
        read=_read_electra, write=_write_electra, tensors=_ELECTRA, prefix="electra.",
        ignored=(
            "electra.embeddings.position_ids", "discriminator_predictions.dense.weight",
            "discriminator_predictions.dense.bias",
            "discriminator_predictions.dense_prediction.weight",
            "discriminator_predictions.dense_prediction.bias",
        ),
        copies={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
        auto_class="AutoModelForMaskedLM",
    ),
    Family(
        model_type="distilbert", classes=encoder_classes("DistilBert"), read=_read_distilbert,
        write=_write_distilbert, tensors=_DISTILBERT, prefix="distilbert.",
        ignored=("distilbert.embeddings.position_ids",),
        copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
        auto_class="AutoModelForMaskedLM",
    ),
)  # fmt: skip
