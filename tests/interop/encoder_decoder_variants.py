"""Variants of the families of encoder-decoders."""

from tests.interop.variants import fields, of_class, of_family, older

_BODY = dict(
    vocab_size=59, d_model=36, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=51, decoder_ffn_dim=51, max_position_embeddings=43,
    forced_eos_token_id=None,
)  # fmt: skip
_COPIES = {
    name: "model.shared.weight"
    for name in (
        "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"
    )
}  # fmt: skip

_MARIAN = _BODY | dict(
    pad_token_id=58, eos_token_id=0, bos_token_id=0, decoder_start_token_id=58,
    activation_function="swish", scale_embedding=True,
)  # fmt: skip
_TWO = dict(
    share_encoder_decoder_embeddings=False, decoder_vocab_size=47, pad_token_id=46,
    decoder_start_token_id=46,
)  # fmt: skip
MARIAN = of_family("marian", "MarianMTModel", _MARIAN, {
    "": fields(),
    "two-tables": fields(**_TWO),
    "untied": fields(**_TWO, tie_word_embeddings=False),
    "untied-one": older(
        base=dict(tie_word_embeddings=False, scale_embedding=False),
        surplus={"model.shared.weight": (59, 36)},
    ),
    "older": older(
        dict(add_bias_logits=False, add_final_layer_norm=False, normalize_before=False,
             normalize_embedding=False, static_position_embeddings=True, extra_pos_embeddings=0,
             num_beams=4, max_length=40, bad_words_ids=[[58]], num_hidden_layers=2, _num_labels=3,
             dtype=..., torch_dtype="float32"),
        surplus=_COPIES,
    ),
})  # fmt: skip

_BART = _BODY | dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2)
BART = of_family("bart", "BartForConditionalGeneration", _BART, {
    "": fields(),
    "older": older(
        dict(num_beams=4, no_repeat_ngram_size=3, normalize_before=False,
             add_final_layer_norm=False, normalize_embedding=True,
             static_position_embeddings=False),
        surplus=_COPIES | {"model.encoder.version": (1,)},
    ),
})  # fmt: skip

MBART = of_family("mbart", "MBartForConditionalGeneration", _BART, {
    "": fields(scale_embedding=True),
})  # fmt: skip

M2M_100 = of_family("m2m_100", "M2M100ForConditionalGeneration", _BART, {
    "": fields(),
    "unscaled": fields(scale_embedding=False, activation_function="gelu"),
    "older": older(
        dict(max_length=200, num_beams=5, early_stopping=True),
        surplus=_COPIES | {
            "model.encoder.embed_positions.weights": (5, 36),
            "model.decoder.embed_positions.weights": (5, 36),
        },
    ),
})  # fmt: skip

_PEGASUS = _BODY | dict(
    pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, activation_function="relu",
    scale_embedding=True,
)  # fmt: skip
PEGASUS = of_family("pegasus", "PegasusForConditionalGeneration", _PEGASUS, {
    "": fields(),
})  # fmt: skip

_T5 = dict(
    vocab_size=59, d_model=37, d_kv=7, d_ff=51, num_layers=3, num_decoder_layers=2, num_heads=4,
    relative_attention_num_buckets=10, relative_attention_max_distance=17, pad_token_id=0,
    eos_token_id=1, decoder_start_token_id=0,
)  # fmt: skip
_HEAD = {"lm_head.weight": (59, 37)}
_TABLES = {
    name: "shared.weight" for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
}
_DERIVED = dict(scale_decoder_outputs=..., dense_act_fn=..., is_gated_act=...)
T5 = of_family("t5", "T5ForConditionalGeneration", _T5, {
    "": fields(),
    "gated": older(
        base=dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False), extra=_HEAD
    ),
    "gated-silu": fields(feed_forward_proj="gated-silu", num_decoder_layers=3),
    "older": older(
        dict(tie_word_embeddings=..., n_positions=512, task_specific_params={}, **_DERIVED),
        surplus=_TABLES | {
            "lm_head.weight": "shared.weight",
            "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": (10, 4),
        },
    ),
    "older-gated": older(
        dict(tie_word_embeddings=False, output_past=True, **_DERIVED),
        base=dict(feed_forward_proj="gated-gelu"), extra=_HEAD, surplus=_TABLES,
    ),
    # As of MADLAD-400, whose file has the table under the name of its copy.
    "decoder-table": older(
        dict(tie_word_embeddings=False, **_DERIVED), base=dict(feed_forward_proj="gated-gelu"),
        extra=_HEAD,
        renamed={"shared.weight": "decoder.embed_tokens.weight"},
    ),
    "encoder": of_class("T5EncoderModel", feed_forward_proj="gated-gelu"),
})  # fmt: skip
MT5 = of_family("mt5", "MT5ForConditionalGeneration", _T5, {
    "": older(base=dict(feed_forward_proj="gated-gelu"), extra=_HEAD),
    "tied": fields(feed_forward_proj="relu"),
    "encoder": of_class("MT5EncoderModel"),
})  # fmt: skip
UMT5 = of_family("umt5", "UMT5ForConditionalGeneration", _T5, {
    "": fields(num_decoder_layers=3),
    "older": older(
        dict(tie_word_embeddings=False, scalable_attention=True, output_past=True, **_DERIVED),
        base=dict(num_decoder_layers=3), extra=_HEAD, surplus=_TABLES,
    ),
    "encoder": of_class("UMT5EncoderModel"),
})  # fmt: skip

ENCODER_DECODERS = MARIAN | BART | MBART | M2M_100 | PEGASUS | T5 | MT5 | UMT5
