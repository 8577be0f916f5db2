"""Variants of the families of decoders."""

from tests.interop.variants import fields, of_class, of_family, older

_IDS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
# Some options of rotary positions change little before the length that scaling starts from.
_YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=24)
_LLAMA3 = dict(
    factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=24
)

_FACTORS = dict(
    short_factor=[1.0, 1.25, 1.5, 2.0, 3.5, 4.0], long_factor=[1.5, 2.25, 4.0, 7.0, 11.0, 13.5]
)
_LONGROPE = dict(rope_type="longrope", rope_theta=1e4, **_FACTORS)


def _rope(**values):
    return fields(rope_parameters=values)


def _inv_freq(depth, size):
    return {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": (size,) for i in range(depth)}


_GPT2 = dict(vocab_size=61, n_positions=83, n_embd=36, n_layer=3, n_head=4, **_IDS)
GPT2 = of_family("gpt2", "GPT2LMHeadModel", _GPT2, {
    "": fields(),
    "gelu-unscaled": fields(
        scale_attn_weights=False, activation_function="gelu", n_inner=51, layer_norm_epsilon=1e-3
    ),
    "classes": of_class("GPT2ForSequenceClassification", num_labels=3),
    "older": older(
        dict(tie_word_embeddings=..., dtype=..., torch_dtype="float32", n_ctx=83,
             task_specific_params={"text-generation": {"do_sample": True, "max_length": 50}}),
        bare=True,
        surplus={f"h.{i}.attn.bias": (1, 1, 83, 83) for i in range(3)}
        | {f"h.{i}.attn.masked_bias": () for i in range(3)} | {"lm_head.weight": "wte.weight"},
    ),
})  # fmt: skip

_OPT = dict(
    vocab_size=59, hidden_size=36, ffn_dim=51, num_hidden_layers=3, num_attention_heads=4,
    max_position_embeddings=83, word_embed_proj_dim=36, bos_token_id=2, eos_token_id=2,
    pad_token_id=1,
)  # fmt: skip
OPT = of_family("opt", "OPTForCausalLM", _OPT, {
    "": fields(),
    "post-norm": fields(do_layer_norm_before=False, tie_word_embeddings=False),
    "classes": of_class("OPTForSequenceClassification", num_labels=3),
    "no-biases": fields(enable_bias=False, activation_function="gelu"),
    "narrow": fields(word_embed_proj_dim=20, do_layer_norm_before=False),
})  # fmt: skip

_NEOX = dict(
    vocab_size=59, hidden_size=48, intermediate_size=61, num_hidden_layers=2, num_attention_heads=3,
    max_position_embeddings=97, **_IDS,
)  # fmt: skip
NEOX = of_family("gpt_neox", "GPTNeoXForCausalLM", _NEOX, {
    "": fields(),
    "sequential": fields(use_parallel_residual=False, hidden_act="gelu_fast", layer_norm_eps=1e-3),
    "classes": of_class("GPTNeoXForSequenceClassification", num_labels=3),
    "tied": fields(attention_bias=False, tie_word_embeddings=True, hidden_act="relu"),
    "older": older(
        dict(rope_parameters=..., rotary_pct=0.5, rotary_emb_base=900, rope_scaling=None),
        surplus={
            f"gpt_neox.layers.{i}.attention.{name}": shape
            for i in range(2)
            for name, shape in {
                "bias": (1, 1, 97, 97), "masked_bias": (), "rotary_emb.inv_freq": (4,)
            }.items()
        },
    ),
})  # fmt: skip

_LLAMA = dict(
    vocab_size=61, hidden_size=40, intermediate_size=53, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=97, **_IDS,
)  # fmt: skip
LLAMA = of_family("llama", "LlamaForCausalLM", _LLAMA, {
    "": fields(),
    "biases": fields(attention_bias=True, mlp_bias=True),
    "tied": fields(tie_word_embeddings=True, hidden_act="gelu_pytorch_tanh"),
    "llama3": _rope(rope_type="llama3", rope_theta=500.0, **_LLAMA3),
    "score": of_class("LlamaForSequenceClassification", num_labels=1),
    "yarn": _rope(**_YARN),
    "yarn-factor": _rope(**_YARN, attention_factor=1.3),
    "yarn-mscale": _rope(
        **_YARN, beta_fast=16.0, beta_slow=2.0, mscale=0.7, mscale_all_dim=0.4, truncate=False
    ),
    "yarn-half-mscale": _rope(**_YARN, mscale=0.7),  # which counts with mscale_all_dim only
    # All texts are longer than the length that the short factors are for.
    "longrope": _rope(
        rope_type="longrope", rope_theta=300.0, original_max_position_embeddings=8,
        short_factor=[1.0] * 5, long_factor=[1.5, 2.25, 4.0, 7.0, 13.5],
    ),
    "older": older(
        dict(rope_parameters=..., rope_theta=3e3, rope_scaling=dict(type="linear", factor=2.0),
             dtype=..., torch_dtype="float16", pretraining_tp=1, head_dim=..., mlp_bias=...),
        surplus=_inv_freq(2, 5),
    ),
})  # fmt: skip

_MISTRAL = _LLAMA | dict(vocab_size=59, sliding_window=None)
MISTRAL = of_family("mistral", "MistralForCausalLM", _MISTRAL, {
    "": fields(hidden_size=37, head_dim=14),
    "window": fields(sliding_window=3),
})  # fmt: skip

_MIXTRAL = _MISTRAL | dict(num_local_experts=5, num_experts_per_tok=2, intermediate_size=27)
MIXTRAL = of_family("mixtral", "MixtralForCausalLM", _MIXTRAL, {
    "": fields(hidden_size=37, head_dim=14),
    "window": fields(sliding_window=5, num_experts_per_tok=3, tie_word_embeddings=True),
})  # fmt: skip

_ARCEE = _LLAMA | dict(vocab_size=53, hidden_act="relu")
ARCEE = of_family("arcee", "ArceeForCausalLM", _ARCEE, {
    "": fields(),
    "silu": fields(hidden_act="silu", head_dim=14, rope_parameters=_YARN),
    "relu2": older(dict(hidden_act=...), base=dict(hidden_act="relu2")),
})  # fmt: skip

_QWEN2 = _LLAMA | dict(vocab_size=67)
QWEN2 = of_family("qwen2", "Qwen2ForCausalLM", _QWEN2, {
    "": fields(),
    "window": fields(
        use_sliding_window=True, sliding_window=5, max_window_layers=1, num_hidden_layers=3
    ),
    "older": older(
        dict(rope_parameters=..., rope_theta=1e6, layer_types=..., use_sliding_window=True,
             sliding_window=6, max_window_layers=1, dtype=..., torch_dtype="bfloat16"),
    ),
    "older-ungrouped": older(
        dict(num_key_value_heads=None), base=dict(num_key_value_heads=4)
    ),
})  # fmt: skip

_QWEN3 = _LLAMA | dict(vocab_size=67, hidden_size=37, head_dim=14)
QWEN3 = of_family("qwen3", "Qwen3ForCausalLM", _QWEN3, {
    "": fields(),
    "biases-window": fields(
        attention_bias=True, use_sliding_window=True, sliding_window=5, max_window_layers=2,
        num_hidden_layers=3,
    ),
})  # fmt: skip

_QWEN2_MOE = _QWEN2 | dict(
    num_experts=6, num_experts_per_tok=3, moe_intermediate_size=23,
    shared_expert_intermediate_size=46,
)  # fmt: skip
QWEN2_MOE = of_family("qwen2_moe", "Qwen2MoeForCausalLM", _QWEN2_MOE, {
    "": fields(),
    "window": fields(
        use_sliding_window=True, sliding_window=5, max_window_layers=2, num_hidden_layers=5,
        norm_topk_prob=True, qkv_bias=False,
    ),
    "classes": of_class("Qwen2MoeForSequenceClassification", num_labels=3),
    "older": older(
        dict(rope_parameters=..., rope_theta=1e6, layer_types=..., mlp_only_layers=...,
             qkv_bias=..., use_sliding_window=True, sliding_window=4, max_window_layers=4),
        base=dict(num_hidden_layers=6),
    ),
})  # fmt: skip

_QWEN3_MOE = _QWEN3 | dict(
    num_experts=6, num_experts_per_tok=3, moe_intermediate_size=23, norm_topk_prob=True
)
QWEN3_MOE = of_family("qwen3_moe", "Qwen3MoeForCausalLM", _QWEN3_MOE, {
    "": fields(),
    "unnormalized": fields(norm_topk_prob=False, tie_word_embeddings=True),
    "biases-window": fields(attention_bias=True, use_sliding_window=True, sliding_window=5),
})  # fmt: skip

_GLM4_MOE = _LLAMA | dict(
    head_dim=12, num_hidden_layers=3, n_routed_experts=6, num_experts_per_tok=2,
    moe_intermediate_size=23,
)  # fmt: skip
GLM4_MOE = of_family("glm4_moe", "Glm4MoeForCausalLM", _GLM4_MOE, {
    "": fields(attention_bias=True),
    "groups": fields(
        n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3, n_shared_experts=2,
        routed_scaling_factor=1.7, first_k_dense_replace=2, use_qk_norm=True, norm_topk_prob=False,
        tie_word_embeddings=True,
    ),
    "older": older(
        dict(rope_parameters=..., rope_theta=1e6, partial_rotary_factor=0.5, rope_scaling=None,
             num_nextn_predict_layers=1),
        surplus={"model.layers.46.eh_proj.weight": (40, 80)},
    ),
})  # fmt: skip

_DOTS1 = _GLM4_MOE | dict(n_shared_experts=2, first_k_dense_replace=1, sliding_window=5)
DOTS1 = of_family("dots1", "Dots1ForCausalLM", _DOTS1, {
    "": fields(norm_topk_prob=True, routed_scaling_factor=2.5),
    "window": fields(
        num_hidden_layers=5, max_window_layers=3, first_k_dense_replace=2, attention_bias=True,
        n_group=2, topk_group=1,
    ),
    "mixtures": older(
        dict(layer_types=..., first_k_dense_replace=..., max_window_layers=2, sliding_window=4),
        base=dict(first_k_dense_replace=0),
    ),
})  # fmt: skip

_GPT_OSS = _LLAMA | dict(
    head_dim=14, intermediate_size=27, num_local_experts=5, num_experts_per_tok=2, sliding_window=4
)
GPT_OSS = of_family("gpt_oss", "GptOssForCausalLM", _GPT_OSS, {
    "": fields(rope_parameters=_YARN | dict(truncate=False)),
    "classes": of_class("GptOssForSequenceClassification", num_labels=3, attention_bias=False),
    "older": older(
        dict(rope_parameters=..., rope_theta=1e4, layer_types=..., swiglu_alpha=...,
             rope_scaling={name: _YARN[name] for name in _YARN if name != "rope_theta"},
             experts_per_token=2, initial_context_length=24),
        base=dict(num_hidden_layers=3),
    ),
})  # fmt: skip

_SMOLLM3 = _LLAMA | dict(vocab_size=59, num_hidden_layers=4)
SMOLLM3 = of_family("smollm3", "SmolLM3ForCausalLM", _SMOLLM3, {
    "": fields(),
    "list": fields(
        no_rope_layers=[0, 1, 0, 1], tie_word_embeddings=False, attention_bias=True, mlp_bias=True
    ),
    "window": fields(no_rope_layer_interval=2, use_sliding_window=True, sliding_window=5),
    "no-positions": fields(no_rope_layers=[0, 0, 0, 0]),
})  # fmt: skip

_PHI3 = _LLAMA | dict(vocab_size=61, hidden_size=48, original_max_position_embeddings=97)
PHI3 = of_family("phi3", "Phi3ForCausalLM", _PHI3, {
    "": fields(num_key_value_heads=4),
    "window": fields(sliding_window=5, tie_word_embeddings=True),
    "partial": fields(partial_rotary_factor=0.5),
    "longrope": fields(
        max_position_embeddings=512, original_max_position_embeddings=128,
        rope_parameters=_LONGROPE,
    ),
    # All texts are longer than that.
    "longrope-beyond": fields(
        original_max_position_embeddings=8, rope_parameters=dict(
            rope_type="longrope", rope_theta=300.0, partial_rotary_factor=0.5, factor=3.0,
            attention_factor=1.3, short_factor=[1.0, 1.5, 2.0], long_factor=[1.25, 3.0, 7.5],
        ),
    ),
    "oldest-longrope": older(
        dict(rope_parameters=..., rope_theta=1e4, rope_scaling=dict(
            _FACTORS, type="su", original_max_position_embeddings=8,  # which transformers 5 needs
        )),
        base=dict(original_max_position_embeddings=8, rope_parameters=_LONGROPE),
    ),
})  # fmt: skip

_OLMO = _LLAMA | dict(vocab_size=61)
OLMO = of_family("olmo", "OlmoForCausalLM", _OLMO, {
    "": fields(),
    "biases": fields(num_key_value_heads=4, attention_bias=True, tie_word_embeddings=True),
})  # fmt: skip

_OLMO2 = _LLAMA | dict(vocab_size=61)
OLMO2 = of_family("olmo2", "Olmo2ForCausalLM", _OLMO2, {
    "": fields(),
    "biases": fields(num_key_value_heads=4, attention_bias=True),
})  # fmt: skip

_OLMO3 = _OLMO2 | dict(num_hidden_layers=5, sliding_window=5)
OLMO3 = of_family("olmo3", "Olmo3ForCausalLM", _OLMO3, {
    "": fields(),
    "yarn": fields(
        layer_types=["full_attention"] + ["sliding_attention"] * 4, attention_bias=True,
        rope_parameters=dict(
            full_attention=_YARN, sliding_attention=dict(rope_type="default", rope_theta=300.0)
        ),
    ),
    "older": older(
        dict(rope_parameters=..., layer_types=..., rope_theta=5e5,
             rope_scaling={name: _YARN[name] for name in _YARN if name != "rope_theta"}),
    ),
})  # fmt: skip

_STARCODER2 = _LLAMA | dict(vocab_size=59)
STARCODER2 = of_family("starcoder2", "Starcoder2ForCausalLM", _STARCODER2, {
    "": fields(),
    "window": fields(sliding_window=5, norm_epsilon=1e-3),
    "untied": fields(use_bias=False, tie_word_embeddings=False, hidden_act="gelu"),
})  # fmt: skip

_GRANITE = _LLAMA | dict(
    vocab_size=67, embedding_multiplier=6.0, attention_multiplier=0.4, residual_multiplier=0.3,
    logits_scaling=3.0,
)  # fmt: skip
GRANITE = of_family("granite", "GraniteForCausalLM", _GRANITE, {
    "": fields(),
    "biases": fields(
        attention_bias=True, mlp_bias=True, tie_word_embeddings=True, embedding_multiplier=0.5,
        residual_multiplier=1.5, logits_scaling=0.7,
    ),
})  # fmt: skip

_GEMMA = dict(
    vocab_size=61, hidden_size=36, intermediate_size=53, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, head_dim=14, max_position_embeddings=97, query_pre_attn_scalar=23,
    sliding_window=5, bos_token_id=2, eos_token_id=1, pad_token_id=0,
)  # fmt: skip
_GEMMA1 = {
    name: _GEMMA[name] for name in _GEMMA if name not in ("query_pre_attn_scalar", "sliding_window")
}
GEMMA1 = of_family("gemma", "GemmaForCausalLM", _GEMMA1, {
    "": fields(),
    "untied": fields(tie_word_embeddings=False, attention_bias=True, hidden_act="silu"),
    "older": older(
        dict(rope_parameters=..., rope_theta=1e4, rope_scaling=None, hidden_act="gelu",
             hidden_activation=None, tie_word_embeddings=...),
    ),
})  # fmt: skip
GEMMA2 = of_family("gemma2", "Gemma2ForCausalLM", _GEMMA, {
    "": fields(attn_logit_softcapping=1.5, final_logit_softcapping=2.0),
    "no-windows": fields(num_hidden_layers=2, layer_types=["full_attention"] * 2),
    "uncapped": fields(
        attn_logit_softcapping=None, final_logit_softcapping=None, attention_bias=True,
        tie_word_embeddings=False, hidden_activation="silu", num_hidden_layers=3,
    ),
    "older": older(
        dict(rope_parameters=..., rope_theta=1e4, layer_types=..., cache_implementation="hybrid",
             hidden_act="gelu_pytorch_tanh", tie_word_embeddings=...),
    ),
})  # fmt: skip
GEMMA3 = of_family("gemma3_text", "Gemma3ForCausalLM", _GEMMA, {
    "": fields(sliding_window_pattern=3),
    "classes": of_class(
        "Gemma3TextForSequenceClassification", num_labels=3, final_logit_softcapping=2.0
    ),
    "linear": fields(
        sliding_window_pattern=2, final_logit_softcapping=2.0, attn_logit_softcapping=4.0,
        rope_parameters=dict(
            full_attention=dict(rope_type="linear", rope_theta=5e4, factor=8.0),
            sliding_attention=dict(rope_type="default", rope_theta=300.0),
        ),
    ),
    "older": older(
        dict(rope_parameters=..., layer_types=..., _sliding_window_pattern=...,
             sliding_window_pattern=2, rope_theta=5e4, rope_local_base_freq=300.0,
             rope_scaling=dict(rope_type="linear", factor=8.0), cache_implementation="hybrid"),
    ),
})  # fmt: skip

_FALCON = dict(
    vocab_size=61, hidden_size=48, ffn_hidden_size=53, num_hidden_layers=2, num_attention_heads=6,
    max_position_embeddings=97, **_IDS,
)  # fmt: skip
FALCON = of_family("falcon", "FalconForCausalLM", _FALCON, {
    "": fields(),
    "two-norms": fields(new_decoder_architecture=True, num_kv_heads=3, layer_norm_epsilon=1e-3),
    "one-norm": fields(
        new_decoder_architecture=True, num_kv_heads=3, num_ln_in_parallel_attn=1,
        tie_word_embeddings=False, activation="relu",
        rope_parameters=dict(rope_type="linear", rope_theta=500.0, factor=3.0),
    ),
    "sequential": fields(parallel_attn=False, multi_query=False, bias=True),
    "classes": of_class("FalconForSequenceClassification", num_labels=3),
    "parallel-heads": fields(multi_query=False, bias=True),
    "older": older(
        dict(rope_parameters=..., rope_theta=700.0, rope_scaling=None, num_kv_heads=6,
             num_ln_in_parallel_attn=..., ffn_hidden_size=..., ff_factor=4,
             apply_residual_connection_post_layernorm=False, tie_word_embeddings=...),
        base=dict(ffn_hidden_size=192),
        surplus={"lm_head.weight": "transformer.word_embeddings.weight"},
    ),
})  # fmt: skip

_GPTJ = dict(vocab_size=61, n_positions=83, n_embd=48, n_layer=2, n_head=4, rotary_dim=6, **_IDS)
GPTJ = of_family("gptj", "GPTJForCausalLM", _GPTJ, {
    "": fields(),
    "full-rotary": fields(
        rotary_dim=12, n_inner=51, activation_function="gelu", layer_norm_epsilon=1e-3,
        tie_word_embeddings=True,
    ),
})  # fmt: skip

_PHI = dict(
    vocab_size=61, hidden_size=48, intermediate_size=53, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=97, **_IDS,
)  # fmt: skip
PHI = of_family("phi", "PhiForCausalLM", _PHI, {
    "": fields(),
    "tied": fields(
        num_key_value_heads=2, tie_word_embeddings=True, hidden_act="relu", layer_norm_eps=1e-3,
        rope_parameters=dict(
            rope_type="linear", rope_theta=500.0, factor=3.0, partial_rotary_factor=1.0
        ),
    ),
    "older": older(
        dict(rope_parameters=..., rope_theta=700.0, rope_scaling=None, partial_rotary_factor=0.34,
             num_key_value_heads=None, dtype=..., torch_dtype="float16"),
    ),
})  # fmt: skip

DECODERS = (
    GPT2 | OPT | NEOX | LLAMA | MISTRAL | ARCEE | QWEN2 | QWEN3 | SMOLLM3 | PHI3 | OLMO | OLMO2
    | OLMO3 | STARCODER2 | GRANITE | GEMMA1 | GEMMA2 | GEMMA3 | FALCON | GPTJ | PHI | MIXTRAL
    | QWEN2_MOE | QWEN3_MOE | GLM4_MOE | DOTS1 | GPT_OSS
)  # fmt: skip
