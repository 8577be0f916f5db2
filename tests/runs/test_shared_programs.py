"""Runs of one process that share compiled programs."""

import dataclasses
import functools
import gc
import weakref

import jax
import numpy as np
import pytest

from jaxformer import runs
from jaxformer.config import AdamWConfig, LoraConfig, ScheduleConfig, SgdConfig
from jaxformer.runs.weights.trials import run_recipe, training_runner
from jaxformer.training import make_train_step, trial
from tests.compilations import counting_compilations
from tests.runs import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("shared")
    tiny.write(path / "text.txt", [f"a line with the number {i}" for i in range(60)])
    return path


@pytest.fixture
def unshared():
    trial._cached.cache_clear()
    yield trial._cached.cache_clear
    trial._cached.cache_clear()


def config(folder, name, **changes):
    optimizer = changes.pop("optimizer", AdamWConfig(learning_rate=2e-2))
    run_config = tiny.config_of_text(folder, {"paths": (str(folder / "text.txt"),)}, **changes)
    return dataclasses.replace(run_config, out=str(folder / name), optimizer=optimizer)


def use(run):
    run.evaluate()
    run.generate("a line", max_new_tokens=3)
    run.log_likelihood(["a line"])


def test_run_with_other_numbers_compiles_nothing_and_is_that_of_a_process_of_its_own(
    folder, unshared
):
    make = functools.partial(
        config, folder, optimizer=AdamWConfig(learning_rate=1e-2, weight_decay=0.3), seed=5,
        training={"steps": 6, "eval_every": 3, "checkpoint_every": 2},
    )  # fmt: skip
    alone = runs.train_run(make("alone"))
    unshared()
    with counting_compilations() as compiled:
        runs.train_run(config(folder, "first"))
    assert compiled  # so JAX still reports them
    use(runs.open_run(folder / "first"))
    with counting_compilations() as compiled:
        second = runs.train_run(make("second"))
        use(runs.open_run(folder / "second"))
    assert compiled == []
    assert second.evaluation == alone.evaluation and second.step == alone.step == 6
    jax.tree.map(np.testing.assert_array_equal, second.params, alone.params)


@pytest.mark.parametrize("seed", [0, 5])
def test_numbers_are_those_of_a_step_that_has_them_compiled_in(folder, seed):
    model = model_of(folder, seed=seed, model={"dropout_rate": 0.5})
    runner = training_runner(model.config)
    recipe = run_recipe(model)
    programs = trial.make_programs(recipe.make, model.config.training, runner)
    state = runner.create(programs.create, (recipe.arguments, None))
    shapes = model.batch_shapes(8).items()
    batch = {name: np.ones(leaf.shape, leaf.dtype) for name, leaf in shapes}
    step = make_train_step(model.loss(0.0), recipe.trial.optimizer, seed=seed)
    expected, metrics = jax.jit(step)(state, batch)
    moved, actual_metrics = programs.train(state, batch, recipe.arguments, None)
    np.testing.assert_allclose(actual_metrics["loss"], metrics["loss"], rtol=1e-6)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), moved, expected)


def test_programs_that_are_kept_hold_no_data(folder, unshared):
    tasks = []
    runs.train_run(config(folder, "held"), on_start=lambda task: tasks.append(weakref.ref(task)))
    gc.collect()
    assert trial._cached.cache_info().currsize == 1
    assert tasks[0]() is None


def model_of(folder, **changes):
    run_config = config(folder, "never", **changes)
    return runs.task_class(run_config).prepare(run_config).model


CHANGES = {
    "loss": {"training": {"label_smoothing": 0.1}},
    "model": {"model": {"dropout_rate": 0.2}},
    "optimizer": {"optimizer": AdamWConfig(learning_rate=2e-2, beta2=0.9)},
    "another optimizer": {"optimizer": SgdConfig(learning_rate=2e-2)},
    "schedule": {"schedule": ScheduleConfig(name="constant", warmup_steps=3)},
    "LoRA": {"lora": LoraConfig(rank=1), "init_from": "elsewhere"},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_what_programs_depend_on_tells_them_apart(folder, changes):
    lora = {name: changes[name] for name in ("lora", "init_from") if name in changes}
    base = model_of(folder, **{k: v for k, v in changes.items() if k not in lora})
    changed = dataclasses.replace(base, config=dataclasses.replace(base.config, **lora))
    first = run_recipe(model_of(folder)).make
    assert first == run_recipe(model_of(folder, seed=3)).make
    assert first != run_recipe(changed).make


def test_loop_settings_that_steps_depend_on_tell_programs_apart(folder, unshared):
    model = model_of(folder)
    runner = training_runner(model.config)
    make = run_recipe(model).make
    loop = model.config.training
    programs = trial.shared_programs(make, loop, runner)
    assert trial.shared_programs(make, dataclasses.replace(loop, steps=99), runner) is programs
    for changes in ({"accumulate_steps": 2}, {"skip_bad_steps": 1}, {"average_decay": 0.9}):
        other = dataclasses.replace(loop, **changes)
        assert trial.shared_programs(make, other, runner) is not programs
