"""Runs with LoRA: matrices beside the weights of another run."""

import dataclasses
import pathlib
import shutil

import chex
import jax
import numpy as np
import pytest

from jaxformer import runs
from jaxformer.config import (
    LoraConfig,
    MeshConfig,
)
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.runs.weights.trials import adapt, combine_of
from jaxformer.training import SingleRunner
from tests.runs import tiny
from tests.training import saved

OWN = tiny.SENTENCES
OTHER = [f"the {animal} ran to the {place}" for animal in ("cat", "dog") for place in ("mat",)]
LORA = LoraConfig(rank=2, alpha=6.0)


def config(folder, lines=OWN, **changes):
    folder.mkdir(exist_ok=True)
    changes["training"] = {"eval_every": 2} | changes.get("training", {})
    return tiny.config_of_sentences(folder, lines, **changes)


def adapting(folder, source, **changes):
    """A config that trains matrices beside the weights of a run."""
    return config(folder, OTHER * 2, **{"init_from": str(source), "lora": LORA} | changes)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory, source):
    """A finished run of matrices: its config, its result and what it logged."""
    run_config = adapting(tmp_path_factory.mktemp("adapted"), source)
    with tiny.logged() as reports:
        result = runs.train_run(run_config)
    return run_config, result, reports


def test_run_trains_and_stores_matrices_alone(source, adapted):
    run_config, result, reports = adapted
    attention = result.params["stack"]["layers"]["attention"]
    assert {name: set(matrices) for name, matrices in attention.items()} == {
        "query_kernel": {"down", "up"}, "value_kernel": {"down", "up"}
    }  # fmt: skip
    trained = sum(leaf.size for leaf in jax.tree.leaves(result.params))
    base = runs.open_run(source).params
    whole = trained + sum(leaf.size for leaf in jax.tree.leaves(base))
    assert f"starting from the weights and tokenizers of {source} at step 4" in reports
    assert reports[-1] == f"LoRA: {trained:,} of {whole:,} parameters are trained"

    def stored(folder):
        files = (pathlib.Path(folder) / "checkpoints/4").rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file())

    # Compressed, and with what every checkpoint has besides its arrays.
    assert stored(source) - stored(run_config.out) > 6 * (whole - 2 * trained)


def test_run_starts_as_its_base_to_the_bit(source, tmp_path):
    task = runs.prepare_task(adapting(tmp_path, source))
    matrices, frozen = adapt(task.model, task.source.start(task.model, SingleRunner()))
    run = runs.open_run(source)
    saved.assert_same(frozen, run.params)
    combined = combine_of(task.config.lora)(matrices, frozen)
    start = dataclasses.replace(task.model, params=combined)
    assert start.log_likelihood(OWN) == run.log_likelihood(OWN)


def test_opened_run_has_one_model_of_base_and_matrices(source, adapted):
    run_config, result, _ = adapted
    run, base = runs.open_run(run_config.out, 4), runs.open_run(source).params
    for name in ("query_kernel", "value_kernel"):
        matrices = result.params["stack"]["layers"]["attention"][name]
        expected = base["stack"]["layers"]["attention"].pop(name) + 3.0 * np.einsum(
            "ldr,lrf->ldf", *(np.float64(matrices[part]) for part in ("down", "up"))
        )
        kernel = run.params["stack"]["layers"]["attention"][name]
        np.testing.assert_allclose(kernel, expected, rtol=0, atol=1e-6)
        assert float(np.abs(expected - kernel * 0).max()) > 0
    params = jax.tree.map(lambda leaf: leaf, run.params)
    for name in ("query_kernel", "value_kernel"):
        params["stack"]["layers"]["attention"].pop(name)
    saved.assert_same(params, base)
    assert run.evaluate().loss == pytest.approx(result.evaluation.loss, rel=1e-5)
    assert run.generate("the cat", max_new_tokens=3, temperature=0.0)
    split = runs.open_run(run_config.out, 4, mesh=MeshConfig(fsdp=2)).params
    chex.assert_trees_all_close(split, run.params, rtol=0, atol=1e-6)


def test_resumed_run_is_the_same_to_the_bit(source, adapted, tmp_path):
    _, result, _ = adapted
    run_config = adapting(tmp_path, source)
    runs.train_run(tiny.change(run_config, training={"steps": 2}))
    saved.assert_same(runs.train_run(run_config).params, result.params)
    for lora, rank in ((dataclasses.replace(LORA, rank=3), 3), (None, None)):
        with pytest.raises(
            CheckpointError, match=f"another config .lora.rank: 2 there, {rank} now"
        ):
            runs.train_run(dataclasses.replace(run_config, lora=lora))
    plain = adapting(tmp_path / "plain", source, lora=None, training={"steps": 1})
    runs.train_run(plain)
    with pytest.raises(CheckpointError, match="another config .lora.rank: None there, 2 now"):
        runs.train_run(dataclasses.replace(plain, lora=LORA))


def test_base_that_is_split_over_devices_is_trained_beside_as_any(source, adapted, tmp_path):
    _, result, _ = adapted
    run_config = adapting(tmp_path, source, training={"runner": "mesh", "devices": 2})
    run_config = dataclasses.replace(run_config, mesh=MeshConfig(fsdp=2))
    runs.train_run(tiny.change(run_config, training={"steps": 2}))
    on_mesh = runs.train_run(run_config)
    chex.assert_trees_all_close(on_mesh.params, result.params, rtol=1e-3, atol=1e-5)
    assert on_mesh.evaluation.loss == pytest.approx(result.evaluation.loss, rel=1e-5)


def test_base_that_has_moved_is_named_and_one_that_has_changed_refused(source, adapted, tmp_path):
    run_config, _, _ = adapted
    before, run = runs.open_run(run_config.out).params, run_config.out
    shutil.copytree(source, tmp_path / "base")
    hidden = source.with_name("hidden")
    source.rename(hidden)
    try:
        missing = "cannot be read: .* No such file or directory; .*--base"
        with pytest.raises(CheckpointError, match=missing):
            runs.open_run(run)
        with pytest.raises(CheckpointError, match=missing):
            runs.train_run(dataclasses.replace(tiny.change(run_config, training={"steps": 5})))
    finally:
        hidden.rename(source)
    saved.assert_same(runs.open_run(run, base=tmp_path / "base").params, before)
    step = tmp_path / "base/checkpoints/4"
    saved.flip(saved.data_file(step))
    saved.sign(step)
    with pytest.raises(CheckpointError, match="is not the one of the training: its SHA-256"):
        runs.open_run(run, base=tmp_path / "base")
    with pytest.raises(ConfigError, match="base can only be set for a LoRA run, got .*; leave"):
        runs.open_run(source, base=tmp_path / "base")
    for other in (adapting(tmp_path / "new", source), dataclasses.replace(run_config, lora=None)):
        with pytest.raises(ConfigError, match="a resumed LoRA run, got .*/base for .*; omit it"):
            runs.train_run(other, base=tmp_path / "base")


def test_run_starts_from_merged_weights_of_one_with_lora(adapted, tmp_path):
    """Of which the next one can have matrices again."""
    run_config, _, _ = adapted
    merged = runs.open_run(run_config.out).params
    again = adapting(tmp_path, run_config.out, lora=LoraConfig(rank=3, targets=("*up_kernel",)))
    task = runs.prepare_task(again)
    saved.assert_same(task.source.start(task.model, SingleRunner()).params, merged)
    runs.train_run(tiny.change(again, training={"steps": 1}))
    params = runs.open_run(again.out).params
    feed_forward = params["stack"]["layers"].pop("feed_forward")
    merged_feed_forward = merged["stack"]["layers"].pop("feed_forward")
    saved.assert_same(params, merged)
    saved.assert_same(feed_forward["down_kernel"], merged_feed_forward["down_kernel"])
    assert float(np.abs(feed_forward["up_kernel"] - merged_feed_forward["up_kernel"]).max()) > 0


def test_classifier_trains_its_new_scores_in_full(tmp_path):
    masked = config(tmp_path / "masked")
    masked = dataclasses.replace(
        masked, model=dataclasses.replace(masked.model, architecture="encoder")
    )
    runs.train_run(masked)
    rows = tiny.write(tmp_path / "rows.tsv", ["the cat sat\ta", "the dog sat\tb"] * 9)
    run_config = tiny.config(
        tmp_path, architecture="encoder", data={"source": "labelled", "paths": (rows,)},
        model={"dropout_rate": 0.0}, training={"steps": 2, "checkpoint_every": 1},
        init_from=masked.out, lora=LORA,
    )  # fmt: skip
    with tiny.logged() as reports:
        result = runs.train_run(run_config)
    assert set(result.params) == {"encoder", "class_kernel", "class_bias"}
    assert set(result.params["encoder"]["stack"]["layers"]["attention"]) == {
        "query_kernel", "value_kernel"
    }  # fmt: skip
    assert any(line.endswith("the scores of the classes start anew") for line in reports)
    run = runs.open_run(run_config.out, 2)
    saved.assert_same(run.params["class_kernel"], result.params["class_kernel"])
    assert run.evaluate().loss == pytest.approx(result.evaluation.loss, rel=1e-5)


def test_adapter_needs_matrices_of_a_model_made_elsewhere(adapted, source, tmp_path):
    for path in (adapted[0].out, source):
        with pytest.raises(ConfigError, match="adapter is for a run with LoRA that started from"):
            runs.convert(path, tmp_path / "adapter", adapter=True)
