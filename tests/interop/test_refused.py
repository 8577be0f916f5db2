"""A config that says what there is no option for is refused, by the name of its field."""

import re

import jax
import numpy as np
import pytest

from jaxformer.config import LinearScalingConfig, RotaryConfig
from jaxformer.errors import ConfigError
from jaxformer.interop import load_huggingface, open_huggingface
from tests.interop.golden import read_golden

UNSUPPORTED = "changes what the model computes and is not supported, only"
# Name of a variant, what is changed in its config (`...`: left out), words of the message.
REFUSED = [
    ("gpt2", dict(scale_attn_by_inverse_layer_idx=True),
     f"scale_attn_by_inverse_layer_idx=True {UNSUPPORTED} False"),
    ("gpt2", dict(activation_function="quick_gelu"),
     f"activation_function='quick_gelu' {UNSUPPORTED}"),
    ("gpt2", dict(add_cross_attention=True), f"add_cross_attention=True {UNSUPPORTED} False"),
    ("gpt2", dict(quantization_config={"bits": 4}), "quantization_config={'bits': 4} changes"),
    ("gpt2", dict(pruned_heads={"0": [1]}), "pruned_heads={'0': [1]} changes"),
    ("gpt2", dict(is_causal=False), "is_causal=False changes"),
    ("gpt2", dict(n_layer=...), "must have n_layer"),
    ("gpt2", dict(n_layer=3.0), "n_layer must be int, got 3.0"),
    ("gpt2", dict(n_layer=True), "n_layer must be int, got True"),
    ("gpt2", dict(layer_norm_epsilon="small"),
     "layer_norm_epsilon must be float or int, got 'small'"),
    ("gpt2", dict(n_head=5), "d_model must be a multiple of num_heads"),
    ("gpt2", dict(model_type="gpt3"), "model_type must be one of gpt2, opt"),
    ("gpt2", dict(architectures=["GPT2DoubleHeadsModel"]),
     "architectures must be one of GPT2LMHeadModel, GPT2ForSequenceClassification, got ['GPT2Dou"),
    ("opt-classes", dict(word_embed_proj_dim=22), f"word_embed_proj_dim=22 {UNSUPPORTED} 36"),
    ("opt", dict(word_embed_proj_dim=22, tie_word_embeddings=False),
     f"tie_word_embeddings=False {UNSUPPORTED} True"),
    ("phi", dict(qk_layernorm=True), f"qk_layernorm=True {UNSUPPORTED} False"),
    ("opt", dict(_remove_final_layer_norm=True),
     f"_remove_final_layer_norm=True {UNSUPPORTED} False"),
    ("opt", dict(layer_norm_elementwise_affine=False),
     "layer_norm_elementwise_affine=False changes"),
    ("llama", dict(rope_parameters=dict(rope_type="dynamic", rope_theta=1e4, factor=3.0)),
     "rope_type 'dynamic' is not supported, only default, linear, llama3, yarn and longrope"),
    ("llama", dict(rope_parameters=dict(rope_type="linear", rope_theta=1e4, factr=3.0)),
     "must have factor"),
    ("phi3-longrope", dict(rope_parameters=dict(
        rope_type="longrope", rope_theta=1e4, short_factor=[1.0] * 5, long_factor=[2.0] * 5)),
     "must have one number for each frequency, half as many as rotated features"),
    ("llama", dict(rope_parameters=dict(rope_theta=1e4, partial_rotary_factor=0.5)),
     f"partial_rotary_factor=0.5 {UNSUPPORTED} 1.0"),
    ("gemma3_text", dict(rope_parameters=dict(full_attention=3)),
     "full_attention must be dict, got 3"),
    ("qwen2", dict(layer_types=["full_attention"]),
     "layer_types must be full_attention or sliding_attention "
     "for each of 2 layers, got ['full_attention']"),
    ("qwen2", dict(layer_types=["full_attention", "chunked_attention"]), "layer_types must be"),
    ("gemma3_text", dict(use_bidirectional_attention=True),
     "use_bidirectional_attention=True changes"),
    ("gpt_neox", dict(head_dim=7), f"head_dim=7 {UNSUPPORTED} None or 16"),
    ("llama", dict(hidden_act="relu2"), f"hidden_act='relu2' {UNSUPPORTED}"),
    ("qwen2_moe", dict(shared_expert_intermediate_size=47),
     "shared_expert_intermediate_size must be a multiple of moe_intermediate_size, got 47 and 23"),
    ("qwen3_moe", dict(decoder_sparse_step=2), f"decoder_sparse_step=2 {UNSUPPORTED} 1"),
    ("qwen3_moe", dict(mlp_only_layers=[1]), f"mlp_only_layers=[1] {UNSUPPORTED} []"),
    ("glm4_moe", dict(n_shared_experts=0), "n_shared_experts must be at least 1, got 0"),
    ("dots1", dict(n_routed_experts=...), "must have n_routed_experts"),
    ("falcon", dict(num_ln_in_parallel_attn=2), f"num_ln_in_parallel_attn=2 {UNSUPPORTED} 1"),
    ("falcon-two-norms", dict(parallel_attn=False), f"parallel_attn=False {UNSUPPORTED} True"),
    ("falcon-two-norms", dict(num_ln_in_parallel_attn=3),
     f"num_ln_in_parallel_attn=3 {UNSUPPORTED} 2 or 1"),
    ("falcon-sequential", dict(num_kv_heads=3), f"num_kv_heads=3 {UNSUPPORTED} 6"),
    ("bert", dict(is_decoder=True), f"is_decoder=True {UNSUPPORTED} False"),
    ("bert", dict(position_embedding_type="relative_key"),
     "position_embedding_type='relative_key' changes"),
    ("bert", dict(hidden_act="relu"), f"hidden_act='relu' {UNSUPPORTED} 'gelu'"),
    ("bert-classes", dict(problem_type="ranking"),
     f"problem_type='ranking' {UNSUPPORTED} None or 'single_label_classification' or"),
    ("bert-score", dict(problem_type="single_label_classification"),
     f"problem_type='single_label_classification' {UNSUPPORTED} None or 'multi_label_class"),
    ("roberta", dict(pad_token_id=0), f"pad_token_id=0 {UNSUPPORTED} 1"),
    ("distilbert", dict(activation="relu"), f"activation='relu' {UNSUPPORTED} 'gelu'"),
    ("modernbert", dict(classifier_activation="silu"), "classifier_activation='silu' changes"),
    ("modernbert", dict(classifier_pooling="last"), "classifier_pooling='last' changes"),
    ("bart", dict(decoder_attention_heads=3), f"decoder_attention_heads=3 {UNSUPPORTED} 4"),
    ("bart", dict(decoder_ffn_dim=47), f"decoder_ffn_dim=47 {UNSUPPORTED} 51"),
    ("m2m_100", dict(pad_token_id=0), f"pad_token_id=0 {UNSUPPORTED} 1"),
    ("t5", dict(feed_forward_proj="gated-relu"), "feed_forward_proj='gated-relu' changes"),
    ("umt5", dict(num_decoder_layers=2), f"num_decoder_layers=2 {UNSUPPORTED} 3"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "words"), REFUSED)
def test_field_without_an_option_is_refused_by_name(name, changes, words, tmp_path):
    read_golden(name).write(tmp_path, **changes)
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_huggingface(tmp_path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gpt2", "decoder"), ("bert-pretraining", "masked"), ("bert-pooled", "pooled"),
        ("bert-older", "masked"), ("roberta-older", "masked"), ("modernbert", "masked"),
        ("modernbert-pooled", "pooled"), ("distilbert", "masked"), ("electra-pooled", "pooled"),
        ("bart", "encoder_decoder"),
    ],
)  # fmt: skip
def test_file_that_names_no_class_is_what_its_tensors_are(name, kind, tmp_path):
    read_golden(name).write(tmp_path)
    expected = load_huggingface(tmp_path)
    read_golden(name).write(tmp_path / "none", architectures=...)
    assert open_huggingface(tmp_path / "none").kind == kind
    loaded = load_huggingface(tmp_path / "none")
    assert loaded.config == expected.config
    jax.tree.map(np.testing.assert_array_equal, loaded.params, expected.params)


def test_rope_theta_of_an_older_gpt_neox_is_not_read(tmp_path):
    read_golden("gpt_neox-older").write(tmp_path, rope_theta=5.0, partial_rotary_factor=1.0)
    config = load_huggingface(tmp_path).config
    assert config.positions == RotaryConfig(base=900.0, rotary_dim=8) and config.key_dim == 16


def test_window_of_one_side_of_modernbert_wins_over_that_of_both(tmp_path):
    read_golden("modernbert").write(tmp_path, local_attention=8, sliding_window=3)
    config = load_huggingface(tmp_path).config
    assert {layer.local_window_size for layer in config.layer_overrides} == {None, 3}


def test_older_scaling_of_rotary_positions_wins(tmp_path):
    read_golden("llama").write(
        tmp_path, rope_parameters={"rope_theta": 1e4, "rope_type": "default"},
        rope_scaling={"type": "linear", "factor": 3.0}, rope_theta=500.0,
    )  # fmt: skip
    positions = load_huggingface(tmp_path).config.positions
    assert positions == RotaryConfig(base=500.0, scaling=LinearScalingConfig(factor=3.0))


@pytest.mark.parametrize(
    ("name", "local_factor"), [("gemma3_text", None), ("olmo3", None), ("modernbert", 3.0)]
)
def test_older_scaling_wins_in_the_layers_that_it_is_for(tmp_path, name, local_factor):
    read_golden(name).write(tmp_path, rope_scaling={"rope_type": "linear", "factor": 3.0})
    config = open_huggingface(tmp_path).config
    factors = {
        layer.local_window_size is None: getattr(
            (layer.positions or config.positions).scaling, "factor", None
        )
        for layer in config.layer_overrides
    }
    assert factors == {True: 3.0, False: local_factor}


def test_file_of_a_newer_transformers_gets_a_warning(tmp_path):
    read_golden("gpt2").write(tmp_path, transformers_version="5.24.2")
    open_huggingface(tmp_path)
    read_golden("gpt2").write(tmp_path, transformers_version="5.25.0.dev0")
    with pytest.warns(UserWarning, match="was written by transformers 5.25; fields that versions"):
        open_huggingface(tmp_path)
