"""Variants of the families of encoders."""

from tests.interop.variants import fields, of_class, of_family, older

_BODY = dict(
    vocab_size=59, hidden_size=36, num_hidden_layers=2, num_attention_heads=4, intermediate_size=51,
    max_position_embeddings=41, type_vocab_size=3, pad_token_id=0,
)  # fmt: skip
# Names of norms before they were called weight and bias.
_GAMMA = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
_POOLER = {"bert.pooler.dense.weight": (36, 36), "bert.pooler.dense.bias": (36,)}
_PAIRS = {"cls.seq_relationship.weight": (2, 36), "cls.seq_relationship.bias": (2,)}
_OLDER = dict(
    tie_word_embeddings=..., dtype=..., torch_dtype="float32", position_embedding_type="absolute",
    gradient_checkpointing=False,
)  # fmt: skip
BERT = of_family("bert", "BertForMaskedLM", _BODY, {
    "": fields(),
    "classes": of_class(
        "BertForSequenceClassification", num_labels=5, hidden_act="gelu_new", layer_norm_eps=1e-3
    ),
    "score": of_class("BertForSequenceClassification", num_labels=1),
    "tokens": of_class("BertForTokenClassification", num_labels=5, hidden_act="relu"),
    "pooled": of_class("BertModel", hidden_act="relu", type_vocab_size=2),
    "pretraining": older(class_name="BertForPreTraining", surplus=_POOLER | _PAIRS),
    "older": older(
        _OLDER, renamed=_GAMMA,
        surplus=_POOLER | _PAIRS | {
            "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
            "bert.embeddings.position_ids": (1, 41),
        },
    ),
})  # fmt: skip

_ROBERTA = _BODY | dict(
    type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2, layer_norm_eps=1e-5
)
ROBERTA = of_family("roberta", "RobertaForMaskedLM", _ROBERTA, {
    "": fields(),
    "classes": of_class(
        "RobertaForSequenceClassification", num_labels=5, hidden_act="relu", type_vocab_size=3
    ),
    "tokens": of_class("RobertaForTokenClassification", num_labels=5),
    "pooled": of_class("RobertaModel"),
    "older": older(
        _OLDER,
        surplus={
            "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
            "roberta.embeddings.position_ids": (1, 41),
            "roberta.pooler.dense.weight": (36, 36),
            "roberta.pooler.dense.bias": (36,),
        },
    ),
})  # fmt: skip

XLM_ROBERTA = of_family("xlm-roberta", "XLMRobertaForMaskedLM", _ROBERTA, {
    "": fields(),
})  # fmt: skip
CAMEMBERT = of_family("camembert", "CamembertForMaskedLM", _ROBERTA, {
    "": fields(),
})  # fmt: skip

ELECTRA = of_family("electra", "ElectraForMaskedLM", _BODY | dict(embedding_size=36), {
    "": fields(),
    "classes": of_class("ElectraForSequenceClassification", num_labels=5, hidden_act="relu"),
    "pooled": of_class("ElectraModel", layer_norm_eps=1e-3, type_vocab_size=2),
})  # fmt: skip

_DISTILBERT = dict(
    vocab_size=59, dim=36, n_layers=2, n_heads=4, hidden_dim=51, max_position_embeddings=41,
    pad_token_id=0,
)  # fmt: skip
DISTILBERT = of_family("distilbert", "DistilBertForMaskedLM", _DISTILBERT, {
    "": fields(),
    "classes": of_class("DistilBertForSequenceClassification", num_labels=5, activation="relu"),
    "tokens": of_class("DistilBertForTokenClassification", num_labels=5),
    "pooled": of_class("DistilBertModel"),
    "older": older(
        dict(tie_word_embeddings=..., tie_weights_=True, output_past=True),
        surplus={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    ),
})  # fmt: skip

_MODERNBERT = dict(
    vocab_size=59, hidden_size=40, intermediate_size=27, num_hidden_layers=4, num_attention_heads=4,
    max_position_embeddings=61, local_attention=6, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    cls_token_id=1, sep_token_id=2,
)  # fmt: skip
_BIASES = dict(norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True)
MODERNBERT = of_family("modernbert", "ModernBertForMaskedLM", _MODERNBERT, {
    "": fields(classifier_pooling="cls"),
    "biases": fields(
        decoder_bias=False, hidden_activation="gelu_pytorch_tanh", local_attention=5, **_BIASES
    ),
    "classes": of_class(
        "ModernBertForSequenceClassification", num_labels=5, classifier_pooling="cls"
    ),
    "mean-classes": of_class(
        "ModernBertForSequenceClassification", num_labels=5, classifier_pooling="mean", **_BIASES
    ),
    "tokens": of_class("ModernBertForTokenClassification", num_labels=5, **_BIASES),
    "pooled": of_class("ModernBertModel", hidden_activation="silu"),
    "older": older(
        dict(rope_parameters=..., layer_types=..., global_attn_every_n_layers=2,
             global_rope_theta=900.0, local_rope_theta=70.0, position_embedding_type="absolute",
             layer_norm_eps=1e-5, reference_compile=True, gradient_checkpointing=False),
    ),
})  # fmt: skip

ENCODERS = BERT | ROBERTA | XLM_ROBERTA | CAMEMBERT | ELECTRA | DISTILBERT | MODERNBERT
