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
from claim import Claim, Finding, Runs, judge, main
from matplotlib.figure import Figure

from jaxformer.config import LoopConfig, ModelConfig
from jaxformer.models import Decoder
from jaxformer.text import Batches, Windows, build_stream, byte_tokenizer, python_documents
from jaxformer.training import TrainingData, Trial, fit_sweep, language_model_loss

CLAIM = Claim(
    title="Warm-up and layer norm",
    paper="Xiong et al., 2020, arXiv 2002.04745",
    words="At initialization, the gradients of the parameters near the output of a post-norm "
    "Transformer are large, so that training at a large learning rate is unstable without "
    "warm-up. Those of a pre-norm Transformer are well-behaved, and it needs no warm-up.",
    setting="Decoders on the bytes of Python's documentation, with the paper's Xavier "
    "initialization, by Adam without clipping. The rate decays linearly to 0, after a third of the "
    "steps of linear warm-up or none. A run trains if its loss over the last tenth of the steps "
    "is nearer to the best of all runs than to the entropy of single bytes.",
    rule="Two parts. Gradients: in every seed, the initial gradient of the last layer's "
    "feed-forward output kernel has a norm at least 1.5 times as large with post-norm. Training: "
    "there is a learning rate at which, in every seed, post-norm trains with warm-up but not "
    "without, and pre-norm trains without. Holds if both are so, in part if one is.",
)
Losses = dict[tuple[str, bool, float], list[float]]  # by norms, with warm-up, rate; of each seed


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
    "accelerator": Size(
        6, 512, 8, 256, batch_size=64, steps=6000, learning_rates=(5e-4, 1e-3, 2e-3)
    ),
}


def decoder(size: Size, norm_position: str) -> Decoder:
    """A decoder of bytes whose kernels and embeddings have standard deviation width ** -0.5."""
    return Decoder(
        ModelConfig(
            vocab_size=257, max_len=size.length, num_layers=size.num_layers, d_model=size.width,
            num_heads=size.heads, norm_position=norm_position, activation="relu",
            init_std=size.width**-0.5, scale_embeddings=True, layer_execution="scan",
        )
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
    params = model.init(rng, jnp.zeros((1, 1), jnp.int32))["params"]
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: scales.get(path[-1].key, 1.0) * leaf, params
    )


def gradients(size: Size, norm_position: str, batches: Mapping[int, Batches]) -> np.ndarray:
    """Initial gradient norm of each layer's feed-forward output kernel `[seeds, L]`."""
    model = decoder(size, norm_position)

    @jax.jit
    def norms(seed: int, batch: Any) -> jax.Array:
        params, loss = draw(model, jax.random.key(seed)), language_model_loss(model)
        found = jax.grad(lambda params: jnp.divide(*loss(params, batch, None)))(params)
        return jnp.linalg.norm(found["stack"]["layers"]["feed_forward"]["down_kernel"], axis=(1, 2))

    return np.array([norms(seed, drawn[0]) for seed, drawn in batches.items()])


def train(size: Size, batches: Mapping[int, Batches]) -> Losses:
    """Trains all combinations; the loss of a run that is no longer finite is inf."""

    def make(learning_rate: Any, warmup: Any, norm_position: str) -> Trial:
        def rate(step: jax.Array) -> jax.Array:
            rises, falls = (step + 1) / (warmup + 1), (size.steps - step) / (size.steps - warmup)
            return learning_rate * jnp.minimum(rises, falls)

        model = decoder(size, norm_position)
        first = functools.partial(draw, model)
        return Trial(language_model_loss(model), first, optax.adam(rate, b2=0.98))

    values = {
        "norm_position": ["post", "pre"], "warmup": [size.steps / 3, 0.0],
        "learning_rate": size.learning_rates, "seed": list(batches),
    }  # fmt: skip
    loop = LoopConfig(steps=size.steps, log_every=size.steps // 10)
    losses: Losses = {}
    for run in fit_sweep(make, values, lambda seed, **_: TrainingData(batches[seed]), None, loop):
        norm, warmup, rate, _ = run.values.values()
        end = np.inf if run.failure else run.result.records[-1]["loss"]
        losses.setdefault((norm, warmup > 0, rate), []).append(float(end))
    return losses


def rates_as_claimed(losses: Losses, limit: float) -> list[float]:
    """Learning rates at which only post-norm without warm-up does not train, in any seed."""
    trained = {key: [loss < limit for loss in found] for key, found in losses.items()}
    return [
        rate for rate in sorted({rate for _, _, rate in losses})
        if all(trained["post", True, rate] + trained["pre", False, rate])
        and not any(trained["post", False, rate])
    ]  # fmt: skip


def measure(size: Size) -> Finding:
    """Measures the gradients at the start, and trains every combination."""
    stream = build_stream(python_documents(), byte_tokenizer())
    windows = Windows(stream, size.length)
    batches = {seed: Batches(windows, size.batch_size, seed=seed) for seed in range(size.seeds)}
    post, pre = (gradients(size, norm, batches) for norm in ("post", "pre"))
    ratios = (post[:, -1] / pre[:, -1]).tolist()
    losses = train(size, batches)
    _, counts = np.unique(stream.tokens, return_counts=True)
    entropy = float(np.log(counts.sum()) - counts @ np.log(counts) / counts.sum())
    limit = (min(map(min, losses.values())) + entropy) / 2
    rates = rates_as_claimed(losses, limit)
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for color, name, norms in (("C0", "post", post), ("C1", "pre", pre)):
        left.plot(range(1, size.num_layers + 1), norms.T, color=color)
        for warm, style in ((True, "-"), (False, "--")):
            ends = np.array([losses[name, warm, rate] for rate in size.learning_rates])
            label = f"{name}-norm, {'with' if warm else 'no'} warm-up"
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
    named = {" ".join(map(str, key)): found for key, found in losses.items()}
    numbers = {"ratios": ratios, "limit": limit, "rates": rates, "losses": named}
    return Finding(judge(min(ratios) > 1.5, bool(rates)), summary, figure, numbers)


if __name__ == "__main__":
    main(CLAIM, SIZES, measure, runs)
