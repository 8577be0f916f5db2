"""Runs with μP: the learning rates of a run."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.config import AdamWConfig, MupConfig, ScheduleConfig
from jaxformer.runs import task_class
from jaxformer.runs.weights.shapes import param_shapes, state_shapes
from jaxformer.runs.weights.trials import run_recipe
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
