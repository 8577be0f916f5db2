"""Which values of a model's config are refused, and what the defaults are."""

import dataclasses
import functools
import math

import ml_dtypes
import numpy as np
import pytest

from jaxformer.config import (
    AlibiConfig,
    ExpertsConfig,
    LayerConfig,
    LinearScalingConfig,
    RelativeConfig,
    RotaryConfig,
    YarnScalingConfig,
)
from jaxformer.errors import ConfigError
from tests.config.test_values import positive
from tests.small_config import LINEAR, LONGROPE, assert_refused, described, model, rows_of

# A number that is not one is never above a bound.
NAN = math.nan
CUDNN = {"attention_implementation": "cudnn", "dtype": "bfloat16"}
WINDOW, WHOLE = LayerConfig(local_window_size=3), LayerConfig()
NO_NORM = LayerConfig(attention_norm=False)
BOTH = {"architecture": "encoder_decoder", "num_encoder_layers": 1}
EXPERTS = {"num_experts": 5, "num_experts_per_token": 2}
REQUIRED = {ExpertsConfig: EXPERTS}
# By kind of config: its keys with wrong values, and parts of the message.
REFUSED = {
    model: [
        *positive(
            "vocab_size", "max_len", "num_heads", "num_kv_heads", "head_dim", "value_head_dim",
            "d_ff", "embedding_dim", "attention_scale", "residual_scale", "init_std",
            "attention_softcap",
        ),
        ({"architecture": "mixer"}, "architecture must be one of encoder, decoder", "'mixer'"),
        ({"architecture": "encoder", "pooling": "none"},
         "pooling 'none' is for an encoder that classifies each token", "num_classes=None"),
        ({"num_classes": 2, "pooling": "none"}, "pooling 'none' is for an encoder",
         "architecture='decoder'"),
        ({"pooling": "last"}, "pooling of a decoder is for one that classifies", "pooling='last'",
         "remove it"),
        ({"architecture": "encoder", "num_classes": 2, "output_bias": True},
         "output_bias is for the logits of tokens", "num_classes=2"),
        ({"architecture": "encoder", "num_classes": 2, "head_bias": True},
         "head_bias of a classifier is the bias of its pooler", "set pooler"),
        ({"residual": "parallel_one_norm", "first_layers": (LayerConfig(attention_norm=False),)},
         "attention_norm = false is not for residual 'parallel_one_norm'"),
        ({"norm": "rms_norm", "norm_bias": True}, "an RMS norm has no bias", "remove norm_bias"),
        ({"positions": RotaryConfig(rotary_dim=8)},
         "rotary_dim must be at most head_dim, got rotary_dim=8 and head_dim=4"),
        ({"logit_scale": NAN}, "logit_scale must be positive"),
        ({"embedding_scale": -1.0}, "embedding_scale must be positive"),
        ({"attention_sinks": True, **CUDNN}, "'cudnn' has no sinks"),
        ({"architecture": "encoder_decoder", "num_encoder_layers": 0},
         "num_encoder_layers must be positive"),
        ({"architecture": "encoder_decoder", "source_vocab_size": 0},
         "source_vocab_size must be positive"),
        ({"architecture": "encoder", "num_classes": 0}, "num_classes must be positive"),
        ({"architecture": "encoder", "embedding_dim": 5},
         "tied embeddings must be as wide as the model", "embedding_dim=5 and d_model=12",
         "set tied_embeddings = false"),
        ({"architecture": "encoder", "positions": RelativeConfig(num_buckets=5)},
         "num_buckets of relative positions of an encoder must be even, and at", "buckets=5"),
        ({"architecture": "encoder_decoder", "positions": RelativeConfig(num_buckets=2)},
         "of an encoder must be even, and at least 4", "num_buckets=2"),
        ({"norm": 3}, "norm must be one of layer_norm, rms_norm, got 3"),
        ({"num_layers": -1}, "num_layers must be positive, got num_layers=-1"),
        ({"norm_eps": NAN}, "norm_eps must be positive, got norm_eps=nan"),
        ({"dropout_rate": 1.0}, "dropout_rate must be in [0, 1)", "dropout_rate=1.0"),
        ({"dropout_rate": -0.1}, "dropout_rate must be in [0, 1)"),
        ({"d_model": 10}, "multiple of num_heads", "d_model=10 and num_heads=3", "head_dim"),
        ({"num_kv_heads": 2}, "multiple of num_kv_heads", "num_heads=3", "num_kv_heads=2"),
        ({"d_model": 9}, "rotary positions need an even head_dim", "head_dim=3"),
        ({"head_dim": 5}, "even head_dim", "head_dim=5"),
        ({"local_window_size": -1}, "local_window_size must be zero or more"),
        ({"logit_softcap": math.inf}, "logit_softcap must be positive"),
        ({"attention_implementation": "flash"}, "must be one of auto, dense, chunked"),
        ({"attention_implementation": "cudnn"}, "'cudnn' computes in bfloat16", "dtype='float32'",
         "or set attention_implementation to 'auto'"),
        ({**CUDNN, "attention_softcap": 5.0}, "'cudnn' has no soft cap", "attention_softcap=5.0"),
        ({**CUDNN, "positions": "alibi"}, "'cudnn' takes no bias", "='alibi'"),
        ({**CUDNN, "positions": "relative"}, "takes no bias", "='relative'"),
        ({**CUDNN, "dropout_rate": 0.1}, "has no dropout", "dropout_rate=0.1"),
        ({"attention_implementation": "splash", "attention_sinks": True,
         "attention_softcap": 5.0}, "'splash' has no sinks beside a soft cap"),
        ({"attention_implementation": "splash", "dropout_rate": 0.1}, "'splash' has no dropout"),
        ({"positions": "alibbi"}, "positions must be one of none,", "mean 'alibi'?"),
        ({"positions": 3}, "positions must be one of NoPositionsConfig", "got 3"),
        ({"positions": LINEAR}, "RotaryConfig, AlibiConfig", "got LinearScalingConfig"),
        ({"positions": None}, "positions must be one of", "got None"),
        ({"positions": RotaryConfig(rotary_dim=2, scaling=LONGROPE)},
         "one number for each frequency, half as many", "numbers=2 and features=2"),
        ({"num_layers": 2, "layers": (WINDOW, WINDOW, WHOLE)},
         "first_layers and the pattern in layers must be at most as many as num_layers",
         "got 0 and 3 of them and num_layers=2; remove some, or raise num_layers"),
        ({"num_layers": 2, "first_layers": (WHOLE,), "layers": (WINDOW, WHOLE)},
         "got 1 and 2 of them and num_layers=2"),
        ({"num_layers": 1, "first_layers": (WHOLE, WHOLE)},
         "at most as many as num_layers", "got 2 and 0 of them and num_layers=1"),
        ({**BOTH, "num_layers": 2, "layers": (WINDOW, WHOLE)}, 
         "at most as many as num_encoder_layers", "num_encoder_layers=1; remove some"),
        ({**BOTH, "num_layers": 2, "first_layers": (WINDOW, WHOLE)},
         "at most as many as num_encoder_layers", "num_encoder_layers=1"),
        ({"layers": [WINDOW]},
         "layers must be a tuple whose items are each LayerConfig, got layers=[Layer"),
        ({"first_layers": ({},)}, "first_layers must be a tuple", "got first_layers=({},)"),
        ({"layers": (LayerConfig(attention_norm=True),)}, "attention_norm is for first_layers",
         "attention_norm=True in layers"),
        ({"first_layers": (NO_NORM,), "norm_position": "post"},
         "is for norm_position 'pre', got norm_position='post'; remove attention_norm"),
        ({"first_layers": (NO_NORM, WHOLE)}, "all first_layers must agree on attention_norm",
         "got [False, None]"),
        ({"positions": "learned", "layers": (LayerConfig(positions="rotary"),)},
         "learned positions are added to the embeddings, which all", "positions='rotary'"),
        ({"d_model": 9, "positions": "none", "layers": (LayerConfig(positions="rotary"),)},
         "rotary positions need an even head_dim, got head_dim=3"),
        ({"architecture": "encoder",
         "first_layers": (LayerConfig(positions=RelativeConfig(num_buckets=5)),)},
         "of an encoder must be even, and at least 4", "num_buckets=5"),
        ({**CUDNN, "layers": (LayerConfig(positions="alibi"),)},
         "'cudnn' takes no bias, got positions='alibi'"),
    ],
    LayerConfig: [
        ({"local_window_size": -1}, "local_window_size must be zero or more"),
        ({"positions": "rotari"}, "positions must be one of", "'rotary'?"),
        *(
            ({"positions": kind}, f"{kind} positions are added to the embeddings once",
             "set model.positions")
            for kind in ("sinusoidal", "learned")
        ),
    ],
    ExpertsConfig: [
        ({"num_experts": 0}, "num_experts must be positive", "got num_experts=0"),
        *positive("num_experts_per_token", "d_ff"),
        ({"num_experts_per_token": 6}, "at most num_experts",
         "num_experts_per_token=6 and num_experts=5"),
        ({"d_ff": 2**25}, "d_ff must be at most"),
        ({"load_balancing_weight": -0.1}, "load_balancing_weight must be zero or more"),
        ({"router_z_weight": NAN}, "router_z_weight must be zero or more"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("row", rows_of(REFUSED), ids=described)
def test_model_configs_refuse_impossible_values_by_name(row):
    kind, changes, *parts = row
    assert_refused(functools.partial(kind, **REQUIRED.get(kind, {}) | changes), parts)


def test_experts_are_normalized_and_balanced_by_default():
    config = ExpertsConfig(**EXPERTS)
    assert (config.normalize_weights, config.load_balancing_weight) == (True, 0.01)
    assert (config.d_ff, config.router_z_weight, config.router_bias) == (None, 0.0, False)
    assert ExpertsConfig(num_experts=np.int64(5), num_experts_per_token=5).num_experts == 5


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
    config = model(architecture="encoder_decoder", vocab_size=7, qk_norm=True, dropout_rate=0.1)
    assert config.encoder == model(
        architecture="encoder", vocab_size=7, qk_norm=True, dropout_rate=0.1
    )
    encoder = dataclasses.replace(config, num_encoder_layers=5, source_vocab_size=9).encoder
    changed = {"num_layers": 5, "vocab_size": 9, "tied_embeddings": False}
    assert encoder == dataclasses.replace(config.encoder, **changed)
    assert config.num_layers != 5


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
