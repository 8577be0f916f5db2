"""Runs that start from the weights and tokenizers of others: fine-tuning."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest

from jaxformer import runs
from jaxformer.config import (
    LearnedConfig,
    MeshConfig,
    RotaryConfig,
    SinusoidalConfig,
    config_to_toml,
)
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.training import SingleRunner, make_runner
from tests.runs import tiny
from tests.training import saved

OTHER = [
    f"the {animal} ran to the {place}" for animal in ("cow", "dog") for place in ("mat", "log")
]


def starting(run_config, source, **changes):
    """A config that starts from a run, and says nothing of its own about the vocabulary."""
    run_config = tiny.change(run_config, model={"vocab_size": None})
    return dataclasses.replace(run_config, init_from=str(source), **changes)


@pytest.mark.essential
def test_run_starts_from_weights_and_tokenizer_of_another(source, tmp_path):
    """On the same data its first loss is the last of the other."""
    before = runs.open_run(source)
    # What changes no parameter may be another: dropout, and the context of rotary positions.
    run_config = tiny.config_of_sentences(
        tmp_path, model={"dropout_rate": 0.1, "layer_execution": "scan"}
    )
    run_config = tiny.standing_still(starting(run_config, source))
    with tiny.logged() as reports:
        result = runs.train_run(run_config)
    assert result.evaluation.loss == pytest.approx(before.evaluate().loss, rel=1e-6)
    tiny.assert_stood_still(before.params, result.params)
    assert f"starting from the weights and tokenizers of {source} at step 4" in reports
    run = runs.open_run(run_config.out)
    assert run.config.init_from == f"{source}@4" and run.config.model.vocab_size == 17
    assert run.tokenizer.words == before.tokenizer.words


def test_start_is_resumed_bitwise_and_without_its_source(source, tmp_path):
    copy = tmp_path / "source"
    shutil.copytree(source, copy)
    run_config = starting(tiny.config_of_sentences(tmp_path, OTHER), copy)
    whole = runs.train_run(dataclasses.replace(run_config, out=str(tmp_path / "whole")))
    words = runs.open_run(tmp_path / "whole").tokenizer.words
    assert words == runs.open_run(source).tokenizer.words and "cow" not in words
    runs.train_run(tiny.change(run_config, training={"steps": 2}))
    shutil.rmtree(copy)
    result = runs.train_run(dataclasses.replace(run_config, init_from=f"{copy}/"))
    jax.tree.map(np.testing.assert_array_equal, result.params, whole.params)
    for init_from in (None, str(source), f"{copy}@2"):
        with pytest.raises(CheckpointError, match=r"init_from: '\S+@4' there, .* now"):
            runs.train_run(dataclasses.replace(run_config, init_from=init_from))


def test_chosen_step_is_started_from(source, tmp_path):
    task = runs.prepare_task(starting(tiny.config_of_sentences(tmp_path), f"{source}@2"))
    start = task.source.start(task.model, SingleRunner())
    assert task.source.step == 2
    jax.tree.map(np.testing.assert_array_equal, start.params, runs.open_run(source, 2).params)


def test_hosts_know_by_a_fingerprint_that_they_start_from_other_weights(
    source, tmp_path, monkeypatch
):
    """Here a host's own copy, at the same path, has another bit in it, and is whole."""
    digests = []
    for host in ("one", "two"):
        shutil.copytree(source, tmp_path / host / "source")
        monkeypatch.chdir(tmp_path / host)
        step = tmp_path / host / "source/checkpoints/4"
        if host == "two":
            saved.flip(saved.data_file(step))
            saved.sign(step)
        run_config = starting(tiny.config_of_sentences(tmp_path), "source")
        start = runs.prepare_task(run_config).source
        assert start.name == "source@4"
        digests.append(start.digest)
    assert digests[0] != digests[1]
    assert runs.prepare_task(tiny.config_of_sentences(tmp_path)).source is None


def test_start_on_a_mesh_is_on_no_device_as_a_whole(source, tmp_path):
    before = runs.open_run(source)
    run_config = starting(
        tiny.config_of_sentences(tmp_path, training={"runner": "auto", "devices": 4}), source
    )
    run_config = dataclasses.replace(
        tiny.standing_still(run_config), mesh=MeshConfig(fsdp=2, tensor=2)
    )
    task = runs.prepare_task(run_config)
    params = task.source.start(task.model, make_runner(mesh=run_config.mesh, devices=4)).params
    kernel = params["stack"]["layers"]["feed_forward"]["up_kernel"]
    assert kernel.addressable_shards[0].data.size == kernel.size // 4
    jax.tree.map(np.testing.assert_array_equal, params, before.params)
    result = runs.train_run(run_config)
    assert result.evaluation.loss == pytest.approx(before.evaluate().loss, rel=1e-6)
    trained = result.params["stack"]["layers"]["feed_forward"]["up_kernel"]
    assert trained.sharding == kernel.sharding
    tiny.assert_stood_still(before.params, result.params)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"d_model": 8}}, "got model.d_model: 16 there, 8 here; set them as in"),
        ({"model": {"vocab_size": 18}}, "got model.vocab_size: 17 there, 18 here"),
        ({"model": {"positions": LearnedConfig(), "max_len": 13}}, "model.max_len: 12 there, 13"),
        ({"tokenizer": {"kind": "byte"}}, "got tokenizer.kind: 'word' there, 'byte' here"),
    ],
)
def test_start_from_another_model_is_refused(source, tmp_path, change, message):
    run_config = dataclasses.replace(
        tiny.change(tiny.config_of_sentences(tmp_path), **change), init_from=str(source)
    )
    with pytest.raises(ConfigError, match=message):
        runs.train_run(run_config)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("positions", "error", "message"),
    [
        (RotaryConfig, CheckpointError, "checkpoint"),  # what comes next is missing
        (SinusoidalConfig, ConfigError, "model.positions.base: 100.0 there, 900.0 here"),
    ],
)
def test_base_of_positions_may_differ_where_they_rotate(tmp_path, positions, error, message):
    """A base stretches what rotary positions turn; of added ones, the weights have learnt it."""
    there, here = (
        tiny.change(tiny.config_of_sentences(tmp_path), model={"positions": positions(base=base)})
        for base in (100.0, 900.0)
    )
    tiny.put_config(tmp_path / "other", config_to_toml(there))
    with pytest.raises(error, match=message):
        runs.prepare_task(dataclasses.replace(here, init_from=str(tmp_path / "other")))


@pytest.mark.parametrize(
    ("init_from", "error", "message"),
    [
        ("{source}@3", CheckpointError, r"has no checkpoint of step 3, only \[2, 4\]"),
        ("{folder}/absent", CheckpointError, "absent is not a run folder: there is no such"),
        (
            "{folder}/translator",
            ConfigError,
            "which holds an encoder-decoder, which translates, for a la",
        ),
    ],
)
def test_start_from_what_is_no_such_run_is_refused(source, tmp_path, init_from, error, message):
    path = init_from.format(source=source, folder=tmp_path)
    translator = tiny.config(tmp_path, architecture="encoder_decoder", data={"source": "sort"})
    tiny.put_config(tmp_path / "translator", config_to_toml(translator))
    with pytest.raises(error, match=message):
        runs.train_run(starting(tiny.config_of_sentences(tmp_path), path))
    assert not (tmp_path / "run").exists()


def test_run_of_a_kernel_of_another_platform_is_used_without_it(source, tmp_path):
    run = runs.open_run(source)
    folder = shutil.copytree(source, tmp_path / "copy")
    changed = tiny.change(run.config, model={"attention_implementation": "splash"})
    tiny.put_config(folder, config_to_toml(changed))
    copy = runs.open_run(folder)
    assert copy.config.model.attention_implementation == "auto"
    assert copy.evaluate() == run.evaluate()
