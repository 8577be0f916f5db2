"""A trained layer of linear self-attention does one step of gradient descent on its context.

python experiments/claims/gradient_descent.py
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from claim import Finding, judge, main
from matplotlib.figure import Figure

from jaxformer.config import LoopConfig
from jaxformer.functional import MultiHeadParams, multi_head_attention
from jaxformer.sweeps import fit_sweep
from jaxformer.training import TrainingData, Trial


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes; with 2 inputs, training stops at a layer that is worse than the step."""

    inputs: int = 10
    context: int = 10
    batch_size: int = 1024
    steps: int = 3000
    learning_rate: float = 5e-3
    test_tasks: int = 10_000
    seeds: int = 3


SIZES = {
    "toy": Size(inputs=5, batch_size=256, steps=600, learning_rate=2e-2, test_tasks=2000),
    "cpu": Size(),
    "accelerator": Size(batch_size=2048, steps=10_000, learning_rate=1e-3),
}


@dataclasses.dataclass(frozen=True)
class Tasks:
    """Batches of regression tasks; each is a function of seed and index."""

    size: Size
    seed: int
    count: int

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([self.seed, index])
        x = rng.uniform(-1, 1, (self.count, self.size.context + 1, self.size.inputs))
        y = x @ rng.normal(size=(self.count, self.size.inputs, 1))
        tokens = np.concatenate([x, y], axis=-1).astype(np.float32)
        return {"context": tokens[:, :-1], "x": tokens[:, -1, :-1], "y": tokens[:, -1, -1]}


def linear_attention(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """Attention without softmax: the sum of the values, weighted by the scores."""
    return jnp.einsum("...tnh,...snh,...snv->...tnv", query, key, value)


def trained_layer(params: MultiHeadParams, context: jax.Array, x: jax.Array) -> jax.Array:
    """Prediction of y `[B]` for the query x `[B, D]`, from the context `[B, S, D + 1]`."""
    query = jnp.pad(x, ((0, 0), (0, 1)))[:, None]
    attended = multi_head_attention(
        params, query, context, num_heads=1, attention_fn=linear_attention
    )
    return attended.output[:, 0, -1]


def descent_step(rate: float, context: jax.Array, x: jax.Array) -> jax.Array:
    """Prediction of y after a step from w = 0 on half the squared error of the context."""
    w = rate * jnp.einsum("bsd,bs->bd", context[..., :-1], context[..., -1])
    return jnp.einsum("bd,bd->b", w, x)


def sensitivities(predict: Any, tasks: dict[str, np.ndarray]) -> jax.Array:
    """Gradient of each prediction with respect to the query x `[B, D]`."""
    return jax.grad(lambda x: predict(tasks["context"], x).sum())(tasks["x"])


def make(size: Size) -> Trial:
    """The layer, its squared error, and Adam with a cosine schedule."""
    width = size.inputs + 1

    def draw(rng: jax.Array) -> MultiHeadParams:
        return MultiHeadParams(*0.05 * jax.random.normal(rng, (4, width, width)))

    def loss(params: Any, batch: Any, dropout_rng: Any) -> tuple[jax.Array, int]:
        error = trained_layer(params, batch["context"], batch["x"]) - batch["y"]
        return (error**2).sum(), error.size

    schedule = optax.cosine_decay_schedule(size.learning_rate, size.steps)
    return Trial(loss, draw, optax.adam(schedule))


def measure(size: Size) -> Finding:
    """Trains the layer in each seed, and compares it with the step."""
    tuning, test = (Tasks(size, seed, size.test_tasks)[0] for seed in (10**6, 10**6 + 1))
    step = np.asarray(descent_step(1.0, tuning["context"], tuning["x"]))
    rate = float(step @ tuning["y"] / (step @ step))  # least squares: a step is linear in its rate
    stepped = float(((descent_step(rate, test["context"], test["x"]) - test["y"]) ** 2).mean())

    @jax.jit
    def cosine(params: Any) -> jax.Array:
        layer = sensitivities(lambda context, x: trained_layer(params, context, x), test)
        step = sensitivities(lambda context, x: descent_step(rate, context, x), test)
        return optax.losses.cosine_similarity(layer, step, epsilon=1e-12).mean()

    def data(seed: int) -> TrainingData:
        return TrainingData(
            Tasks(size, seed, size.batch_size), lambda: [test], unit="task",
            scores=lambda params: {"cosine": float(cosine(params))},
        )  # fmt: skip

    often = max(size.steps // 30, 1)
    loop = LoopConfig(steps=size.steps, log_every=10 * often, eval_every=often)
    runs = fit_sweep(lambda: make(size), {"seed": range(size.seeds)}, data, None, loop)
    curves = [[record for record in run.result.records if "cosine" in record] for run in runs]
    losses, cosines = (
        [float(curve[-1][name]) for curve in curves] for name in ("validation_loss", "cosine")
    )
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for curve in curves:
        for axes, name in ((left, "validation_loss"), (right, "cosine")):
            axes.plot([record["step"] for record in curve], [record[name] for record in curve])
    left.axhline(stepped, color="black", linestyle=":", label="one step of gradient descent")
    left.set(xlabel="training step", title="Mean squared error of the layer, by seed")
    left.legend()
    right.set(xlabel="training step", title="Cosine of sensitivities, layer and step")
    close = all(abs(loss / stepped - 1) < 0.02 for loss in losses)
    summary = (
        f"Mean squared error of the layer {min(losses):.4f} to {max(losses):.4f}, of one step at "
        f"rate {rate:.3f} {stepped:.4f}; cosine of the sensitivities {min(cosines):.4f} to "
        f"{max(cosines):.4f}."
    )
    numbers = {"rate": rate, "step": stepped, "layer": losses, "cosine": cosines}
    return Finding(judge(close, min(cosines) > 0.99), summary, figure, numbers)


if __name__ == "__main__":
    main("gradient_descent", SIZES, measure)
