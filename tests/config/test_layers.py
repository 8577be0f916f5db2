"""Layers that differ from the model: patterns, as published models have them, and their rules."""

import pytest

from jaxformer.config import (
    LayerConfig,
    LinearScalingConfig,
    RotaryConfig,
    load_config,
)
from tests.small_config import model

WINDOW, WHOLE = LayerConfig(local_window_size=3), LayerConfig()
NO_NORM = LayerConfig(attention_norm=False)
BOTH = {"architecture": "encoder_decoder", "num_encoder_layers": 1}
REST = """
[tokenizer]
kind = "byte"

[optimizer]
learning_rate = 1e-3

[training]
steps = 7
batch_size = 5
"""
GEMMA_3 = """
# Gemma 3 1B (Gemma Team, 2025), the scaling that of the larger ones: five layers of a window of
# 512 tokens, the token itself among them, and then one of the whole context.
[model]
max_len = 32768
num_layers = 26
d_model = 1152
num_heads = 4
num_kv_heads = 1
head_dim = 256
d_ff = 6912
norm = "rms_norm"
norm_position = "sandwich"
activation = "geglu"
qk_norm = true

[[model.layers]]
local_window_size = 511

[[model.layers]]
local_window_size = 511

[[model.layers]]
local_window_size = 511

[[model.layers]]
local_window_size = 511

[[model.layers]]
local_window_size = 511

[[model.layers]]
[model.layers.positions]
kind = "rotary"
base = 1_000_000
scaling = {kind = "linear", factor = 8}
"""
MODERN_BERT = """
# ModernBERT base (Warner et al., 2024): every third layer sees the whole text, the first among
# them, which has no norm before its attention either.
[model]
architecture = "encoder"
max_len = 8192
num_layers = 22
d_model = 768
num_heads = 12
d_ff = 1152
activation = "geglu"
use_bias = false

[[model.first_layers]]
attention_norm = false
positions = {kind = "rotary", base = 160_000}

[[model.layers]]
local_window_size = 64

[[model.layers]]
local_window_size = 64

[[model.layers]]
positions = {kind = "rotary", base = 160_000}
"""


@pytest.fixture
def load_model(tmp_path):
    def load(text):
        (tmp_path / "model.toml").write_text(text + REST, encoding="utf-8")
        return load_config(tmp_path / "model.toml").model

    return load


def test_layers_of_gemma_3_are_five_local_and_one_global(load_model):
    config = load_model(GEMMA_3)
    layers = config.layer_overrides
    assert config.positions == RotaryConfig(base=10_000.0)
    assert len(layers) == 26
    whole = RotaryConfig(base=1e6, scaling=LinearScalingConfig(factor=8.0))
    for index, layer in enumerate(layers):
        is_global = index % 6 == 5
        assert layer.local_window_size == (None if is_global else 511)
        assert layer.positions == (whole if is_global else None)
    assert layers[-1].local_window_size == 511  # the last repeat is cut


def test_layers_of_modern_bert_start_with_one_without_norm(load_model):
    first, *later = load_model(MODERN_BERT).layer_overrides
    assert first == LayerConfig(attention_norm=False, positions=RotaryConfig(base=160_000.0))
    assert [layer.local_window_size for layer in later] == [64, 64, None] * 7
    assert later[2].positions == RotaryConfig(base=160_000.0)


def test_layer_overrides_follow_first_layers_and_pattern():
    assert model(num_layers=3).layer_overrides == (WHOLE,) * 3
    config = model(num_layers=6, first_layers=(NO_NORM,), layers=(WINDOW, WHOLE))
    assert config.layer_overrides == (NO_NORM, WINDOW, WHOLE, WINDOW, WHOLE, WINDOW)
    assert model(num_layers=2, first_layers=(WINDOW,)).layer_overrides == (WINDOW, WHOLE)
    assert model(num_layers=1, first_layers=(WINDOW,)).layer_overrides == (WINDOW,)


def test_layer_overrides_of_an_encoder_are_those_of_its_depth():
    config = model(**BOTH | {"num_encoder_layers": 5}, num_layers=3, layers=(WINDOW, WHOLE))
    assert config.layer_overrides == (WINDOW, WHOLE, WINDOW)
    assert config.encoder.layer_overrides == (WINDOW, WHOLE, WINDOW, WHOLE, WINDOW)
