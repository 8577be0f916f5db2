"""Configs written as TOML, and what two of them differ in."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer.config import (
    AdamWConfig,
    DataConfig,
    LayerConfig,
    LoraConfig,
    RotaryConfig,
    SamplesConfig,
    ScheduleConfig,
    TokenizerConfig,
    TrainingConfig,
    changed_settings,
    config_differences,
    config_to_toml,
    load_config,
)
from tests.small_config import YARN, model, small


@pytest.fixture
def load(tmp_path):
    """Writes a config file and loads it."""

    def write_and_load(text):
        (tmp_path / "written.toml").write_text(text, encoding="utf-8")
        return load_config(tmp_path / "written.toml")

    return write_and_load


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


def test_config_with_every_key_set_is_read_back_equal(load):
    config = small(
        out="there",
        init_from="elsewhere@5",
        lora=LoraConfig(rank=2, alpha=3.5, targets=("*kernel",)),
        seed=3,
        model=model(
            vocab_size=301, num_kv_heads=1, head_dim=6, value_head_dim=7, d_ff=5,
            positions=RotaryConfig(base=1e6, layout="interleaved", scaling=YARN),
            layers=(LayerConfig(local_window_size=2), LayerConfig(attention="linear")),
            local_window_size=3, attention_softcap=50.0, logit_softcap=30.0, qk_norm=True,
            attention_implementation="chunked", norm="rms_norm", norm_position="sandwich",
             norm_eps=1e-6, activation="swiglu", use_bias=False,
            tied_embeddings=False, scale_embeddings=True, init_std=0.1, dropout_rate=0.5,
            dtype="bfloat16", param_dtype="bfloat16", remat="full", layer_execution="loop",
        ),
        data=DataConfig(
            paths=("a", "b"), validation_fraction=0.5, validation_paths=("c",),
            packing="documents",
        ),
        tokenizer=TokenizerConfig(kind="word", vocab_size=300),
        optimizer=AdamWConfig(
            learning_rate=1e-20, beta1=0.0, beta2=0.5, eps=1e22, weight_decay=0.0, clip_norm=2.0
        ),
        schedule=ScheduleConfig(name="linear", warmup_steps=1, decay_steps=5, final_scale=0.0),
        training=TrainingConfig(
            steps=7, batch_size=6, accumulate_steps=3, runner="pmap", devices=1, cpu_devices=2,
            log_every=1, eval_every=2, checkpoint_every=3, keep_checkpoints=4,
        ),
        samples=SamplesConfig(
            repetition_penalty=2.0, temperature=0.0, top_k=1, top_p=0.5, min_p=0.25,
            prompts=(), max_new_tokens=3,
        ),
    )  # fmt: skip
    unset = [f.name for f in dataclasses.fields(config) if getattr(config, f.name) is None]
    assert not unset
    assert load(config_to_toml(config)) == config


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
    new = small(
        out="there",
        model=model(d_ff=5),
        training=TrainingConfig(steps=9, batch_size=5),
    )
    assert config_differences(old, new) == {
        "out": (None, "there"),
        "model.d_ff": (None, 5),
        "training.steps": (7, 9),
    }
    assert config_differences(new, old)["training.steps"] == (9, 7)
    assert config_differences(old, new, "run.")["run.model.d_ff"] == (None, 5)
    assert config_differences(model(), model(d_ff=5), "model.") == {"model.d_ff": (None, 5)}
