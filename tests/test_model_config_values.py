"""Which values of a model's config are refused, and what the defaults are."""

import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest

from jaxformer.config import (
    AlibiConfig,
    LayerConfig,
    LinearScalingConfig,
    Llama3ScalingConfig,
    RelativeConfig,
    RotaryConfig,
    SinusoidalConfig,
    YarnScalingConfig,
)
from jaxformer.errors import ConfigError
from tests.small_config import LINEAR, LONGROPE, YARN, assert_refused, model

# A number that is not one is never above a bound.
NAN = math.nan
CUDNN = {"attention_implementation": "cudnn", "dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: model(architecture="mixer"),
            ["architecture must be one of encoder, decoder", "'mixer'"],
        ),
        (
            lambda: model(architecture="encoder", pooling="none"),
            ["pooling 'none' is for an encoder that classifies each token", "num_classes=None"],
        ),
        (
            lambda: model(num_classes=2, pooling="none"),
            ["pooling 'none' is for an encoder", "architecture='decoder'"],
        ),
        (
            lambda: model(pooling="last"),
            ["pooling of a decoder is for one that classifies", "pooling='last'", "remove it"],
        ),
        (
            lambda: model(architecture="encoder", num_classes=2, output_bias=True),
            ["output_bias is for the logits of tokens", "num_classes=2"],
        ),
        (
            lambda: model(architecture="encoder", num_classes=2, head_bias=True),
            ["head_bias of a classifier is the bias of its pooler", "set pooler"],
        ),
        (
            lambda: model(
                residual="parallel_one_norm", first_layers=(LayerConfig(attention_norm=False),)
            ),
            ["attention_norm = false is not for residual 'parallel_one_norm'"],
        ),
        (
            lambda: model(norm="rms_norm", norm_bias=True),
            ["an RMS norm has no bias", "remove norm_bias"],
        ),
        (
            lambda: model(positions=RotaryConfig(rotary_dim=8)),
            ["rotary_dim must be at most head_dim, got rotary_dim=8 and head_dim=4"],
        ),
        (lambda: RotaryConfig(rotary_dim=3), ["rotary_dim must be even, got rotary_dim=3"]),
        (lambda: SinusoidalConfig(offset=-1), ["offset must be zero or more"]),
        (lambda: model(attention_scale=0.0), ["attention_scale must be positive"]),
        (lambda: model(logit_scale=NAN), ["logit_scale must be positive"]),
        (lambda: model(residual_scale=0.0), ["residual_scale must be positive"]),
        (lambda: model(embedding_scale=-1.0), ["embedding_scale must be positive"]),
        (lambda: model(attention_sinks=True, **CUDNN), ["'cudnn' has no sinks"]),
        (
            lambda: model(architecture="encoder_decoder", num_encoder_layers=0),
            ["num_encoder_layers must be positive"],
        ),
        (
            lambda: model(architecture="encoder_decoder", source_vocab_size=0),
            ["source_vocab_size must be positive"],
        ),
        (lambda: model(architecture="encoder", num_classes=0), ["num_classes must be positive"]),
        (lambda: model(embedding_dim=0), ["embedding_dim must be positive"]),
        (
            lambda: model(architecture="encoder", embedding_dim=5),
            [
                "tied embeddings must be as wide as the model",
                "embedding_dim=5 and d_model=12",
                "set tied_embeddings = false",
            ],
        ),
        (
            lambda: model(architecture="encoder", positions=RelativeConfig(num_buckets=5)),
            ["num_buckets of relative positions of an encoder must be even, and at", "buckets=5"],
        ),
        (
            lambda: model(architecture="encoder_decoder", positions=RelativeConfig(num_buckets=2)),
            ["of an encoder must be even, and at least 4", "num_buckets=2"],
        ),
        (lambda: model(norm=3), ["norm must be one of layer_norm, rms_norm, got 3"]),
        (lambda: model(vocab_size=0), ["vocab_size must be positive, got vocab_size=0"]),
        (lambda: model(max_len=0), ["max_len must be positive"]),
        (lambda: model(num_layers=-1), ["num_layers must be positive, got num_layers=-1"]),
        (lambda: model(num_heads=0), ["num_heads must be positive"]),
        (lambda: model(num_kv_heads=0), ["num_kv_heads must be positive"]),
        (lambda: model(head_dim=0), ["head_dim must be positive"]),
        (lambda: model(value_head_dim=0), ["value_head_dim must be positive"]),
        (lambda: model(d_ff=0), ["d_ff must be positive"]),
        (lambda: RotaryConfig(base=0.0), ["base must be positive"]),
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
        (lambda: model(local_window_size=-1), ["local_window_size must be zero or more"]),
        (lambda: model(attention_softcap=0.0), ["attention_softcap must be positive"]),
        (lambda: model(logit_softcap=math.inf), ["logit_softcap must be positive"]),
        (lambda: model(attention_implementation="flash"), ["must be one of auto, dense, chunked"]),
        (
            lambda: model(attention_implementation="cudnn"),
            [
                "'cudnn' computes in bfloat16",
                "dtype='float32'",
                "or set attention_implementation to 'auto'",
            ],
        ),
        (
            lambda: model(**CUDNN, attention_softcap=5.0),
            ["'cudnn' has no soft cap", "attention_softcap=5.0"],
        ),
        (lambda: model(**CUDNN, positions="alibi"), ["'cudnn' takes no bias", "='alibi'"]),
        (lambda: model(**CUDNN, positions="relative"), ["takes no bias", "='relative'"]),
        (lambda: model(**CUDNN, dropout_rate=0.1), ["has no dropout", "dropout_rate=0.1"]),
        (
            lambda: model(
                attention_implementation="splash", attention_sinks=True, attention_softcap=5.0
            ),
            ["'splash' has no sinks beside a soft cap"],
        ),
        (
            lambda: model(attention_implementation="splash", dropout_rate=0.1),
            ["'splash' has no dropout"],
        ),
        (lambda: model(positions="alibbi"), ["positions must be one of none,", "mean 'alibi'?"]),
        (lambda: model(positions=3), ["positions must be one of NoPositionsConfig", "got 3"]),
        (lambda: model(positions=LINEAR), ["RotaryConfig, AlibiConfig", "got LinearScalingConfig"]),
        (lambda: model(positions=None), ["positions must be one of", "got None"]),
        (lambda: AlibiConfig(kind="rotary"), ["kind must be one of alibi, got 'rotary'"]),
        (lambda: SinusoidalConfig(base=-1.0), ["base must be positive, got base=-1.0"]),
        (lambda: SinusoidalConfig(layout="pairs"), ["layout must be one of interleaved, half"]),
        (lambda: RotaryConfig(layout="pairs"), ["layout must be one of half, interleaved"]),
        (
            lambda: RotaryConfig(scaling="ntk"),
            ["scaling must be one of linear, llama3, yarn, longrope, or be left out, got 'ntk'"],
        ),
        (
            lambda: RotaryConfig(scaling="yarn"),
            ["scaling of kind 'yarn' needs factor and original_max_len", "YarnScalingConfig("],
        ),
        (lambda: RotaryConfig(scaling=2.0), ["scaling must be one of Linear", "got 2.0"]),
        (lambda: RotaryConfig(base=1.0, scaling=YARN), ["more than 1 for yarn", "base=1.0"]),
        (lambda: RelativeConfig(num_buckets=1), ["at least 2", "num_buckets=1"]),
        (
            lambda: RelativeConfig(num_buckets=-1),
            ["num_buckets must be at least 2, got num_buckets=-1"],
        ),
        (lambda: RelativeConfig(max_distance=0), ["max_distance must be positive"]),
        (lambda: RelativeConfig(table=-1), ["table must be zero or more", "table=-1"]),
        (
            lambda: RelativeConfig(num_buckets=8, max_distance=4),
            ["more than num_buckets // 2", "max_distance=4", "num_buckets=8"],
        ),
        (lambda: dataclasses.replace(LINEAR, factor=0.5), ["factor must be at least 1", "=0.5"]),
        (lambda: dataclasses.replace(LINEAR, factor=math.nan), ["factor must be at least 1"]),
        (
            lambda: Llama3ScalingConfig(
                factor=8.0, original_max_len=8, low_freq_factor=4.0, high_freq_factor=4.0
            ),
            ["low_freq_factor must be less than high_freq_factor", "low_freq_factor=4.0"],
        ),
        (
            lambda: Llama3ScalingConfig(
                factor=8.0, original_max_len=0, low_freq_factor=1.0, high_freq_factor=4.0
            ),
            ["original_max_len must be positive"],
        ),
        (
            lambda: YarnScalingConfig(factor=2.0, original_max_len=8, beta_slow=32.0),
            ["beta_slow must be less than beta_fast", "beta_slow=32.0 and beta_fast=32.0"],
        ),
        (lambda: dataclasses.replace(YARN, mscale=0.0), ["mscale must be positive"]),
        (lambda: longrope(original_max_len=1), ["original_max_len must be at least 2", "=1"]),
        (lambda: longrope(factor=0.5), ["factor must be at least 1", "factor=0.5"]),
        (lambda: longrope(short_factor=[1.0, 2.0]), ["short_factor must be a tuple", "[1.0, 2"]),
        (
            lambda: longrope(long_factor=(1.0, "2")),
            ["long_factor must be a tuple", "(1.0, '2')"],
        ),
        (lambda: longrope(long_factor=(1.0, NAN)), ["positive numbers, one for each", "nan"]),
        (lambda: longrope(long_factor=(1.0,)), ["must have the same length, got 2 and 1 numbers"]),
        (lambda: longrope(attention_factor=-1.0), ["attention_factor must be positive"]),
        (
            lambda: model(positions=RotaryConfig(rotary_dim=2, scaling=LONGROPE)),
            ["one number for each frequency, half as many", "numbers=2 and features=2"],
        ),
        *(
            (
                lambda given=given: YarnScalingConfig(factor=2.0, original_max_len=8, **given),
                ["attention_factor, or mscale and mscale_all_dim, or none of them", str(given)],
            )
            for given in (
                {"mscale": 1.0},
                {"mscale_all_dim": 0.5},
                {"attention_factor": 1.5, "mscale": 1.0, "mscale_all_dim": 0.5},
            )
        ),
    ],
)
def test_model_configs_refuse_impossible_values_by_name(make, words):
    assert_refused(make, words)


def longrope(**changes):
    return dataclasses.replace(LONGROPE, **changes)


def test_model_configs_accept_values_at_their_bounds():
    model(dropout_rate=0.0, d_model=10, head_dim=2)
    model(d_model=9, positions="learned")
    model(positions=RelativeConfig(num_buckets=2, max_distance=2), local_window_size=1)
    model(**CUDNN, local_window_size=3)
    model(attention_implementation="splash", dtype="float32", attention_softcap=5.0)
    model(attention_implementation="splash", attention_sinks=True)
    model(architecture="encoder", positions=RelativeConfig(num_buckets=4), num_classes=2)
    model(embedding_dim=12)
    model(embedding_dim=5)
    model(embedding_dim=5, tied_embeddings=False)
    model(architecture="encoder", embedding_dim=5, num_classes=2)  # nothing is scored
    LinearScalingConfig(factor=1.0)
    YarnScalingConfig(factor=1.0, original_max_len=1, mscale=0.7, mscale_all_dim=1.0)


def test_model_config_fills_in_widths():
    config = model()
    assert (config.kv_heads, config.key_dim, config.value_dim, config.ff_dim) == (3, 4, 4, 48)
    assert model(num_kv_heads=1).key_dim == 4
    config = model(num_kv_heads=1, head_dim=6, d_ff=5)
    assert (config.kv_heads, config.key_dim, config.value_dim, config.ff_dim) == (1, 6, 6, 5)
    assert model(head_dim=6, value_head_dim=7).value_dim == 7


def test_model_config_of_the_encoder_has_its_own_layers_and_vocabulary():
    both = model(architecture="encoder_decoder", vocab_size=7, qk_norm=True, dropout_rate=0.1)
    assert both.encoder == model(
        architecture="encoder", vocab_size=7, qk_norm=True, dropout_rate=0.1
    )
    own = dataclasses.replace(both, num_encoder_layers=5, source_vocab_size=9).encoder
    changed = {"num_layers": 5, "vocab_size": 9, "tied_embeddings": False}
    assert own == dataclasses.replace(both.encoder, **changed)
    assert both.num_layers != 5


def test_model_config_has_a_table_as_wide_as_the_model_by_default():
    assert model().table_dim == 12
    assert model(embedding_dim=5, tied_embeddings=False).table_dim == 5


def test_model_config_takes_the_name_of_a_kind_of_positions_for_its_config():
    assert model(positions="alibi").positions == AlibiConfig()
    assert model(positions="alibi") == model(positions=AlibiConfig())
    assert dataclasses.replace(model(), positions="relative").positions == RelativeConfig()
    assert model().positions == RotaryConfig()
    assert isinstance(hash(model(positions="sinusoidal")), int)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(ml_dtypes.bfloat16, "bfloat16"), (np.dtype("float32"), "float32"), (np.float32, "float32")],
)
def test_model_config_takes_dtypes_as_numpy_and_jax_have_them(dtype, name):
    """`jnp.bfloat16` is `ml_dtypes.bfloat16` to NumPy."""
    config = model(dtype=dtype, param_dtype=dtype)
    assert (config.dtype, config.param_dtype) == (name, name)
    for wrong in (np.float16, None, "float16"):
        with pytest.raises(ConfigError, match="dtype must be one of float32, bfloat16, got"):
            model(dtype=wrong)
