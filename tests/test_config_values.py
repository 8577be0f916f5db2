"""Which values of a config are refused, and what the defaults are."""

import dataclasses
import math

import pytest

from jaxformer.config import (
    DataConfig,
    OptimizerConfig,
    RotaryScalingConfig,
    SamplesConfig,
    SamplingConfig,
    ScheduleConfig,
    TokenizerConfig,
    TrainingConfig,
)
from jaxformer.errors import ConfigError
from tests.small_config import LINEAR, model, small

# A number that is not one is never above a bound.
NAN = math.nan
CUDNN = {"attention_implementation": "cudnn", "dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: model(architecture="mixer"), ["architecture must be one of decoder", "'mixer'"]),
        (lambda: model(norm=3), ["norm must be one of layer_norm, rms_norm, got 3"]),
        (lambda: model(vocab_size=0), ["vocab_size must be positive, got vocab_size=0"]),
        (lambda: model(max_len=0), ["max_len must be positive"]),
        (lambda: model(num_layers=-1), ["num_layers must be positive, got num_layers=-1"]),
        (lambda: model(num_heads=0), ["num_heads must be positive"]),
        (lambda: model(num_kv_heads=0), ["num_kv_heads must be positive"]),
        (lambda: model(head_dim=0), ["head_dim must be positive"]),
        (lambda: model(value_head_dim=0), ["value_head_dim must be positive"]),
        (lambda: model(d_ff=0), ["d_ff must be positive"]),
        (lambda: model(rotary_base=0.0), ["rotary_base must be positive"]),
        (lambda: model(norm_eps=NAN), ["norm_eps must be positive, got norm_eps=nan"]),
        (lambda: model(init_std=0.0), ["init_std must be positive"]),
        (lambda: model(dropout_rate=1.0), ["dropout_rate must be in [0, 1)", "dropout_rate=1.0"]),
        (lambda: model(dropout_rate=-0.1), ["dropout_rate must be in [0, 1)"]),
        (
            lambda: model(d_model=10),
            ["multiple of num_heads", "d_model=10 and num_heads=3", "head_dim"],
        ),
        (
            lambda: model(num_kv_heads=2),
            ["multiple of num_kv_heads", "num_heads=3", "num_kv_heads=2"],
        ),
        (lambda: model(d_model=9), ["rotary positions need an even head_dim", "head_dim=3"]),
        (lambda: model(head_dim=5), ["even head_dim", "head_dim=5"]),
        (lambda: model(local_window_size=0), ["local_window_size must be positive"]),
        (lambda: model(attention_softcap=0.0), ["attention_softcap must be positive"]),
        (lambda: model(logit_softcap=math.inf), ["logit_softcap must be positive"]),
        (lambda: model(attention_implementation="flash"), ["must be one of auto, dense, chunked"]),
        (
            lambda: model(attention_implementation="cudnn"),
            ["'cudnn' computes in bfloat16", "dtype='float32'", "such as to 'auto'"],
        ),
        (
            lambda: model(**CUDNN, attention_softcap=5.0),
            ["'cudnn' has no soft cap", "attention_softcap=5.0"],
        ),
        (lambda: model(**CUDNN, positions="alibi"), ["'cudnn' takes no bias", "='alibi'"]),
        (lambda: model(**CUDNN, positions="relative"), ["takes no bias", "='relative'"]),
        (lambda: model(**CUDNN, dropout_rate=0.1), ["has no dropout", "dropout_rate=0.1"]),
        (
            lambda: model(positions="alibi", rotary_scaling=LINEAR),
            ["for rotary positions", "positions='alibi'", "kind='linear'", "remove rotary_scaling"],
        ),
        (
            lambda: model(relative_buckets=8),
            ["relative_buckets is for relative positions", "positions='rotary'", "=8; remove it"],
        ),
        (
            lambda: model(positions="alibi", relative_max_distance=64),
            ["relative_max_distance is for relative positions", "positions='alibi'"],
        ),
        (lambda: model(positions="relative", relative_buckets=1), ["at least 2", "_buckets=1"]),
        (
            lambda: model(positions="relative", relative_buckets=-1),
            ["relative_buckets must be pos"],
        ),
        (
            lambda: model(positions="relative", relative_buckets=8, relative_max_distance=4),
            ["more than relative_buckets // 2", "relative_max_distance=4", "relative_buckets=8"],
        ),
        (lambda: RotaryScalingConfig(kind="ntk"), ["kind must be one of none, linear, llama3"]),
        (lambda: RotaryScalingConfig(kind="linear"), ["kind 'linear' needs factor"]),
        (lambda: RotaryScalingConfig(kind="yarn", factor=2.0), ["'yarn' needs original_max_len"]),
        (
            lambda: RotaryScalingConfig(kind="llama3", factor=2.0, original_max_len=8),
            ["'llama3' needs low_freq_factor"],
        ),
        (
            lambda: RotaryScalingConfig(factor=2.0),
            ["factor is for rotary scaling of kind 'linear' or 'llama3' or 'yarn'", "kind='none'"],
        ),
        (
            lambda: dataclasses.replace(LINEAR, beta_fast=8.0),
            ["beta_fast is for rotary scaling of kind 'yarn'", "kind='linear'", "remove it"],
        ),
        (lambda: dataclasses.replace(LINEAR, factor=0.5), ["factor must be at least 1", "=0.5"]),
        (lambda: dataclasses.replace(LINEAR, factor=math.nan), ["factor must be positive"]),
        (
            lambda: RotaryScalingConfig(
                kind="llama3",
                factor=8.0,
                original_max_len=8,
                low_freq_factor=4.0,
                high_freq_factor=4.0,
            ),
            ["low_freq_factor must be less than high_freq_factor", "low_freq_factor=4.0"],
        ),
        (
            lambda: RotaryScalingConfig(
                kind="yarn", factor=2.0, original_max_len=8, beta_slow=32.0
            ),
            ["beta_slow must be less than beta_fast", "beta_slow=32.0 and beta_fast=32.0"],
        ),
        (lambda: TokenizerConfig(), ["'bpe' needs tokenizer.vocab_size"]),
        (lambda: TokenizerConfig(vocab_size=256), ["at least 257", "vocab_size=256"]),
        (lambda: TokenizerConfig(kind="word", vocab_size=0), ["vocab_size must be positive"]),
        (lambda: TokenizerConfig(kind="byte", vocab_size=300), ["kind='byte'", "remove it"]),
        (lambda: TokenizerConfig(kind="character", vocab_size=9), ["kind='character'"]),
        (lambda: DataConfig(source="python", paths=("a",)), ["source='python'", "paths=('a',)"]),
        (lambda: DataConfig(source="web"), ["source must be one of python, files"]),
        (lambda: DataConfig(validation_fraction=0.0), ["between 0 and 1", "=0.0"]),
        (lambda: DataConfig(validation_fraction=1.0), ["between 0 and 1", "=1.0"]),
        (lambda: OptimizerConfig(learning_rate=0.0), ["learning_rate must be positive"]),
        (lambda: OptimizerConfig(learning_rate=NAN), ["learning_rate must be positive"]),
        (lambda: OptimizerConfig(learning_rate=1.0, eps=0.0), ["eps must be positive"]),
        (
            lambda: OptimizerConfig(learning_rate=1.0, clip_norm=-0.5),
            ["clip_norm must be zero or more"],
        ),
        (
            lambda: OptimizerConfig(learning_rate=1.0, weight_decay=-1.0),
            ["weight_decay must be zero"],
        ),
        (lambda: OptimizerConfig(learning_rate=1.0, beta1=1.0), ["beta1 must be in [0, 1)"]),
        (lambda: OptimizerConfig(learning_rate=1.0, beta2=-0.1), ["beta2 must be in [0, 1)"]),
        (lambda: ScheduleConfig(warmup_steps=-1), ["warmup_steps must be zero or more"]),
        (lambda: ScheduleConfig(final_scale=1.1), ["final_scale must be in [0, 1]"]),
        (lambda: ScheduleConfig(decay_steps=5), ["constant schedule has no decay_steps, got 5"]),
        (lambda: ScheduleConfig(name="cosine"), ["'cosine' needs schedule.decay_steps"]),
        (
            lambda: ScheduleConfig(name="linear", warmup_steps=5, decay_steps=5),
            ["decay_steps must be larger than warmup_steps", "decay_steps=5 and warmup_steps=5"],
        ),
        (lambda: TrainingConfig(steps=0, batch_size=1), ["steps must be positive"]),
        (lambda: TrainingConfig(steps=1, batch_size=0), ["batch_size must be positive"]),
        (lambda: TrainingConfig(steps=1, batch_size=1, devices=0), ["devices must be positive"]),
        (
            lambda: TrainingConfig(steps=1, batch_size=1, cpu_devices=0),
            ["cpu_devices must be positive"],
        ),
        (
            lambda: TrainingConfig(steps=1, batch_size=1, log_every=0),
            ["log_every must be positive"],
        ),
        (lambda: TrainingConfig(steps=1, batch_size=1, eval_every=0), ["eval_every must be"]),
        (
            lambda: TrainingConfig(steps=1, batch_size=1, checkpoint_every=0),
            ["checkpoint_every must"],
        ),
        (
            lambda: TrainingConfig(steps=1, batch_size=1, keep_checkpoints=0),
            ["keep_checkpoints must"],
        ),
        (
            lambda: TrainingConfig(steps=1, batch_size=5, accumulate_steps=2),
            ["batch_size must be a multiple of accumulate_steps", "batch_size=5"],
        ),
        (lambda: SamplingConfig(temperature=-0.1), ["temperature must be zero or more"]),
        (lambda: SamplingConfig(repetition_penalty=0.0), ["repetition_penalty must be positive"]),
        (lambda: SamplingConfig(top_k=0), ["top_k must be positive"]),
        (lambda: SamplingConfig(top_p=0.0), ["top_p must be in (0, 1]"]),
        (lambda: SamplingConfig(top_p=1.1), ["top_p must be in (0, 1]"]),
        (lambda: SamplingConfig(min_p=-0.1), ["min_p must be in [0, 1]"]),
        (lambda: SamplesConfig(top_k=0), ["top_k must be positive"]),
        (lambda: SamplesConfig(max_new_tokens=0), ["max_new_tokens must be positive"]),
    ],
)
def test_configs_refuse_impossible_values_by_name(make, words):
    with pytest.raises(ConfigError) as error:
        make()
    for word in words:
        assert word in str(error.value)


def test_configs_accept_values_at_their_bounds():
    model(dropout_rate=0.0, d_model=10, head_dim=2)
    model(d_model=9, positions="learned")
    model(positions="relative", relative_buckets=2, relative_max_distance=2, local_window_size=1)
    model(**CUDNN, local_window_size=3)
    RotaryScalingConfig(kind="linear", factor=1.0)
    TokenizerConfig(vocab_size=257)
    TokenizerConfig(kind="word")
    OptimizerConfig(learning_rate=1.0, beta1=0.0, weight_decay=0.0, clip_norm=0.0)
    ScheduleConfig(name="cosine", warmup_steps=4, decay_steps=5, final_scale=0.0)
    ScheduleConfig(final_scale=1.0)
    SamplingConfig(temperature=0.0, top_k=1, top_p=1.0, min_p=0.0)
    SamplingConfig(min_p=1.0)


def test_model_config_fills_in_widths():
    config = model()
    assert (config.kv_heads, config.key_dim, config.value_dim, config.ff_dim) == (3, 4, 4, 48)
    assert model(num_kv_heads=1).key_dim == 4
    config = model(num_kv_heads=1, head_dim=6, d_ff=5)
    assert (config.kv_heads, config.key_dim, config.value_dim, config.ff_dim) == (1, 6, 6, 5)
    assert model(head_dim=6, value_head_dim=7).value_dim == 7


def test_configs_are_hashable_frozen_and_keyword_only():
    config = small()
    assert hash(config.model) == hash(model())
    assert {config: 1}[small()] == 1
    assert config.model != model(d_ff=5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.model.d_ff = 5
    with pytest.raises(TypeError):
        SamplingConfig(1.0)
