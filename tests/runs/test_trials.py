"""Programs of runs: their numbers, and with μP the learning rates of parameters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.config import AdamWConfig, MupConfig, ScheduleConfig
from jaxformer.runs import prepare_task, task_class
from jaxformer.runs.weights.shapes import param_shapes, state_shapes
from jaxformer.runs.weights.trials import run_recipe
from jaxformer.training import SingleRunner, make_train_step
from jaxformer.training.trial import make_programs
from tests.runs import tiny
from tests.small_config import model, small

WIDE = model(d_model=24, vocab_size=7, mup=MupConfig(d_model=12))


def test_kernels_of_a_run_move_by_the_learning_rate_of_their_width():
    config = small(
        model=WIDE,
        optimizer=AdamWConfig(learning_rate=0.1, weight_decay=0.0, clip_norm=0.0),
        schedule=ScheduleConfig(name="constant"),
    )
    planned = task_class(config).text_model(config=config, tokenizers=())
    ones = jax.tree.map(lambda leaf: jnp.ones(leaf.shape), param_shapes(planned))
    optimizer = run_recipe(planned).trial.optimizer
    state = optimizer.init(ones)
    assert jax.tree.structure(state) == jax.tree.structure(state_shapes(planned).opt_state)
    updates, _ = optimizer.update(ones, state, ones)
    layers = updates["stack"]["layers"]
    np.testing.assert_allclose(layers["attention"]["query_kernel"], -0.05, rtol=1e-5)
    np.testing.assert_allclose(layers["feed_forward"]["down_kernel"], -0.05, rtol=1e-5)
    np.testing.assert_allclose(updates["embedding"]["embedding"], -0.1, rtol=1e-5)


@pytest.mark.parametrize("seed", [0, 5])
def test_numbers_are_those_of_a_step_that_has_them_compiled_in(tmp_path, seed):
    path = tiny.write(tmp_path / "text.txt", [f"a line with the number {i}" for i in range(60)])
    config = tiny.config_of_text(
        tmp_path, {"paths": (path,)}, seed=seed, model={"dropout_rate": 0.5}
    )
    model, runner = prepare_task(config).model, SingleRunner()
    recipe = run_recipe(model)
    programs = make_programs(recipe.make, config.training, runner)
    state = runner.create(programs.create, (recipe.arguments, None))
    shapes = model.batch_shapes(8).items()
    batch = {name: np.ones(leaf.shape, leaf.dtype) for name, leaf in shapes}
    step = make_train_step(model.loss(0.0), recipe.trial.optimizer, seed=seed)
    expected, metrics = jax.jit(step)(state, batch)
    moved, actual_metrics = programs.train(state, batch, recipe.arguments, None)
    np.testing.assert_allclose(actual_metrics["loss"], metrics["loss"], rtol=1e-6)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), moved, expected)
