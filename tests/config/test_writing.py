"""Configs written as TOML, and what two of them differ in."""

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer.config import (
    AdamWConfig,
    DataConfig,
    LayerConfig,
    RotaryConfig,
    SamplesConfig,
    TrainingConfig,
    changed_settings,
    config_differences,
    config_from_dict,
    config_to_toml,
    load_config,
)
from tests.config.test_types import INSTANCES
from tests.small_config import model, small

# TOML has no surrogates; everything else can be quoted.
TEXT = st.text(max_size=9) | st.text(
    alphabet="\"'\\\x00\x08\t\n\f\r\x1b\x7f\x85\u2028#= é\U0001f600"
)
NUMBERS = st.floats(min_value=0, exclude_min=True, allow_infinity=False)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("configs") / "scratch.toml"


@settings(max_examples=100, deadline=None)
@given(
    out=TEXT.filter(bool),
    prompts=st.lists(TEXT, max_size=3),
    paths=st.lists(TEXT, max_size=3),
    rate=NUMBERS,
    seed=st.integers(0, 2**31 - 1),
    top_k=st.none() | st.integers(1, 2**31 - 1),
    flag=st.booleans(),
)
def test_config_written_as_toml_is_read_back_equal(
    scratch, out, prompts, paths, rate, seed, top_k, flag
):
    config = small(
        out=out,
        seed=seed,
        model=model(use_bias=flag, positions=RotaryConfig(base=rate)),
        data=DataConfig(paths=tuple(paths)),
        optimizer=AdamWConfig(learning_rate=rate),
        samples=SamplesConfig(prompts=tuple(prompts), top_k=top_k),
    )
    scratch.write_bytes(config_to_toml(config).encode())
    assert load_config(scratch) == config


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda config: type(config).__name__)
def test_every_config_is_read_back_equal(instance):
    values = tomllib.loads(config_to_toml(instance))
    assert config_from_dict(type(instance), values) == instance


def test_unset_keys_are_left_out_and_defaults_are_written():
    values = tomllib.loads(config_to_toml(small()))
    assert "out" not in values and "num_kv_heads" not in values["model"]
    assert values["model"]["norm_eps"] == 1e-5 and values["samples"]["prompts"] == []


def test_changed_settings_are_those_that_are_not_at_their_defaults():
    layers = (LayerConfig(attention="own"), LayerConfig())
    config = small(model=model(positions="alibi", layers=layers), data=DataConfig(paths=("a",)))
    assert changed_settings(config) == {
        "model.max_len": "13", "model.num_layers": "2", "model.d_model": "12",
        "model.num_heads": "3", "model.positions.kind": '"alibi"',
        "model.layers": '[{ attention = "own" }, {  }]', "data.paths": '["a"]',
        "tokenizer.kind": '"byte"',
        "training.steps": "7", "training.batch_size": "5",
    }  # fmt: skip
    changed = changed_settings(small(model=model(positions=RotaryConfig(base=3.0))))
    assert changed["model.positions.base"] == "3.0" and "model.positions.kind" not in changed


def test_config_differences_lists_dotted_keys():
    old = small()
    assert config_differences(old, small()) == {}
    new = small(out="there", model=model(d_ff=5), training=TrainingConfig(steps=9, batch_size=5))
    assert config_differences(old, new) == {
        "out": (None, "there"),
        "model.d_ff": (None, 5),
        "training.steps": (7, 9),
    }
    assert config_differences(new, old)["training.steps"] == (9, 7)
    assert config_differences(old, new, "run.")["run.model.d_ff"] == (None, 5)
    assert config_differences(model(), model(d_ff=5), "model.") == {"model.d_ff": (None, 5)}
