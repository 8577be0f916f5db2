"""Pre-norm Transformers train without warm-up where post-norm Transformers need it.

python experiments/claims/layer_norm.py
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from byte_decoders import byte_decoder, seeded_batches
from claim import Finding, Runs, judge, main
from matplotlib.figure import Figure

from jaxformer.config import LoopConfig
from jaxformer.models import Decoder
from jaxformer.sweeps import fit_sweep
from jaxformer.text import Batches
from jaxformer.training import TrainingData, Trial, language_model_loss

NORMS, WARMUPS = ("post", "pre"), ("with", "no")


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes; with 12 layers, post-norm does not train in 300 steps, even with warm-up."""

    num_layers: int = 6
    width: int = 32
    heads: int = 2
    length: int = 64
    batch_size: int = 8
    steps: int = 300
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    seeds: int = 3


SIZES = {
    "toy": Size(2, 8, length=8, batch_size=2, steps=10, learning_rates=(1e-2,), seeds=1),
    "cpu": Size(),
    "accelerator": Size(6, 512, 8, 256, 64, 6000, learning_rates=(5e-4, 1e-3, 2e-3)),
}


def decoder(size: Size, norm_position: str) -> Decoder:
    """A decoder of bytes whose kernels and embeddings have standard deviation width ** -0.5."""
    return byte_decoder(
        max_len=size.length, num_layers=size.num_layers, d_model=size.width, num_heads=size.heads,
        norm_position=norm_position, activation="relu", init_std=size.width**-0.5,
        scale_embeddings=True, layer_execution="scan",
    )  # fmt: skip


def runs(size: Size) -> list[Runs]:
    """What is trained."""
    count = 2 * 2 * len(size.learning_rates) * size.seeds
    model = decoder(size, "pre").config
    return [Runs(model, count, size.steps, size.batch_size, size.length)]


def draw(model: Decoder, rng: jax.Array) -> Any:
    """Initial parameters: the library's, with the scales of kernels changed to Xavier's."""
    narrow = (2 * model.config.num_layers) ** 0.5  # GPT-2's for residual projections, which we undo
    up = (2 / 5) ** 0.5  # a feed-forward layer's kernels have 1 + 4 widths at their two ends
    scales = {"output_kernel": narrow, "up_kernel": up, "down_kernel": narrow * up}
    params = model.init_params(rng)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: scales.get(path[-1].key, 1.0) * leaf, params
    )


def gradients(size: Size, norm_position: str, batches: Mapping[int, Batches]) -> np.ndarray:
    """Initial gradient norm of each layer's feed-forward output kernel `[seeds, L]`."""
    model = decoder(size, norm_position)

    @jax.jit
    def norms(seed: int, batch: Any) -> jax.Array:
        params, loss = draw(model, jax.random.key(seed)), language_model_loss(model)
        gradients = jax.grad(lambda params: jnp.divide(*loss(params, batch, None)))(params)
        return jnp.linalg.norm(
            gradients["stack"]["layers"]["feed_forward"]["down_kernel"], axis=(1, 2)
        )

    return np.array([norms(seed, drawn[0]) for seed, drawn in batches.items()])


def train(size: Size, batches: Mapping[int, Batches]) -> np.ndarray:
    """Final losses `[norms, warm-ups, rates, seeds]`; inf if the loss is not finite."""

    def make(learning_rate: Any, warmup: Any, norm_position: str) -> Trial:
        def rate(step: jax.Array) -> jax.Array:
            rises, falls = (step + 1) / (warmup + 1), (size.steps - step) / (size.steps - warmup)
            return learning_rate * jnp.minimum(rises, falls)

        model = decoder(size, norm_position)
        first = functools.partial(draw, model)
        return Trial(language_model_loss(model), first, optax.adam(rate, b2=0.98))

    values = {
        "norm_position": NORMS, "warmup": [size.steps / 3, 0.0],
        "learning_rate": size.learning_rates, "seed": list(batches),
    }  # fmt: skip
    loop = LoopConfig(steps=size.steps, log_every=size.steps // 10)
    runs = fit_sweep(make, values, lambda seed, **_: TrainingData(batches[seed]), None, loop)
    ends = [np.inf if run.failure else run.result.records[-1]["loss"] for run in runs]
    return np.reshape(ends, [len(values_of_key) for values_of_key in values.values()])


def is_as_claimed(losses: np.ndarray, limit: float) -> np.ndarray:
    """Whether only post-norm without warm-up does not train, in any seed `[rates]`."""
    (post, post_without), (_, pre_without) = losses < limit
    return (post & pre_without).all(-1) & ~post_without.any(-1)


def measure(size: Size) -> Finding:
    """Measures the gradients at the start, and trains every combination."""
    stream, batches = seeded_batches(size)
    post, pre = (gradients(size, norm, batches) for norm in NORMS)
    ratios = (post[:, -1] / pre[:, -1]).tolist()
    losses = train(size, batches)
    _, counts = np.unique(stream.tokens, return_counts=True)
    entropy = float(np.log(counts.sum()) - counts @ np.log(counts) / counts.sum())
    limit = (losses.min() + entropy) / 2
    rates = np.array(size.learning_rates)[is_as_claimed(losses, limit)].tolist()
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for color, name, norms, by_warmup in zip(("C0", "C1"), NORMS, (post, pre), losses, strict=True):
        left.plot(range(1, size.num_layers + 1), norms.T, color=color)
        for style, warmup, ends in zip(("-", "--"), WARMUPS, by_warmup, strict=True):
            label = f"{name}-norm, {warmup} warm-up"
            right.plot(size.learning_rates, ends.mean(1), f"{color}{style}", label=label)
            right.plot(size.learning_rates, ends, f"{color}.")
    left.set(xlabel="layer", yscale="log", title="Initial gradient of the feed-forward output")
    right.axhline(limit, color="black", linestyle=":", label="trains below")
    right.set(xlabel="learning rate", xscale="log", title="Loss at the end (nats per byte)")
    right.legend()
    summary = (
        f"Gradient of the last layer, post-norm over pre-norm: {min(ratios):.2f} to "
        f"{max(ratios):.2f}. Learning rates at which only post-norm without warm-up fails (loss "
        f"above {limit:.2f}): {', '.join(map('{:g}'.format, rates)) or 'none'}."
    )
    numbers = {"ratios": ratios, "limit": limit, "rates": rates, "losses": losses.tolist()}
    return Finding(judge(min(ratios) > 1.5, bool(rates)), summary, figure, numbers)


if __name__ == "__main__":
    main("layer_norm", SIZES, measure, runs)
