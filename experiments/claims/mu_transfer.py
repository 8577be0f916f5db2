"""With the maximal update parametrization, the best learning rate does not depend on the width.

python experiments/claims/mu_transfer.py
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from claim import Claim, Finding, Runs, judge, main
from matplotlib.figure import Figure

from jaxformer.config import LoopConfig, ModelConfig, MupConfig
from jaxformer.models import Decoder
from jaxformer.text import Batches, Windows, build_stream, byte_tokenizer, python_documents
from jaxformer.training import (
    TrainingData,
    Trial,
    fit_sweep,
    language_model_loss,
    mup_factors,
    scale_by_factors,
)

CLAIM = Claim(
    title="Transfer of the learning rate",
    paper="Yang et al., 2022, arXiv 2203.03466",
    words="In the maximal update parametrization (μP), many optimal hyperparameters remain stable "
    "as the model size changes, so that those of a small model can be used for a large one. In the "
    "standard parametrization, the optimal learning rate falls with the width.",
    setting="Decoders of growing width with heads of one size, on the bytes of Python's "
    "documentation, by Adam with a linear decay and without clipping. The best rate of a width has "
    "the lowest loss over the last tenth of the steps. The coordinate check measures the root mean "
    "square change of the logits by the first ten steps, at one rate.",
    rule="Three parts, each in every seed. With μP, the best rates of any two widths differ by at "
    "most a factor of 2 (a step of the grid). Without, that of the widest is at most a quarter of "
    "that of the narrowest. From the narrowest to the widest, the change of the logits grows by "
    "less than a factor of 1.5 with μP, and by more than 2 without. Holds if all are so.",
)


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes; the narrowest width is the base of μP."""

    widths: tuple[int, ...] = (16, 32, 64, 128)
    learning_rates: tuple[float, ...] = tuple(2.0**exponent for exponent in range(-9, -2))
    checked_rate: float = 2.0**-7
    num_layers: int = 2
    head_dim: int = 8
    length: int = 32
    batch_size: int = 8
    steps: int = 200
    seeds: int = 3


SIZES = {
    "toy": Size((8, 32), (2.0**-8, 2.0**-7), length=16, batch_size=4, steps=10, seeds=1),
    "cpu": Size(),
    "accelerator": Size(
        tuple(2**exponent for exponent in range(7, 14)), tuple(2.0**e for e in range(-16, -7)),
        2.0**-10, head_dim=64, length=256, batch_size=32, steps=10_000,
    ),
}  # fmt: skip
NAMES = ("standard", "μP")


def decoder(size: Size, width: int, name: str) -> Decoder:
    """A decoder of bytes."""
    base, head_dim = size.widths[0], size.head_dim
    mup = MupConfig(d_model=base, num_heads=base // head_dim) if name == "μP" else None
    return Decoder(
        ModelConfig(
            vocab_size=257, max_len=size.length, num_layers=size.num_layers, d_model=width,
            num_heads=width // head_dim, layer_execution="scan", mup=mup,
        )
    )  # fmt: skip


def runs(size: Size) -> list[Runs]:
    """What is trained."""
    count = len(NAMES) * len(size.learning_rates) * size.seeds
    models = (decoder(size, width, "standard").config for width in size.widths)
    return [Runs(one, count, size.steps, size.batch_size, size.length) for one in models]


def draw(rng: jax.Array, *, config: ModelConfig) -> Any:
    """Initial parameters."""
    return Decoder(config).init(rng, jnp.zeros((1, 1), jnp.int32))["params"]


@functools.lru_cache
def factors(config: ModelConfig) -> Any:
    """Factor of the learning rate of each parameter; 1 without μP."""
    own, base = (
        jax.eval_shape(functools.partial(draw, config=one), jax.random.key(0))
        for one in (config, config.base)
    )
    return mup_factors(own, base)


def make(learning_rate: Any, width: int, name: str, *, size: Size) -> Trial:
    """What a run trains: a decoder, by Adam; with μP, each kernel at the rate of its width."""
    model = decoder(size, width, name)
    adam = optax.adam(optax.linear_schedule(learning_rate, 0.0, size.steps), b2=0.98)
    optimizer = optax.chain(adam, scale_by_factors(factors(model.config)))
    first = functools.partial(draw, config=model.config)
    return Trial(language_model_loss(model), first, optimizer)


def train(size: Size, batches: Mapping[int, Batches], rates: Sequence[float]) -> np.ndarray:
    """Trains all combinations: runs `[names, widths, seeds, rates]`."""
    values = {"name": NAMES, "width": size.widths, "seed": list(batches), "learning_rate": rates}
    loop = LoopConfig(steps=size.steps, log_every=size.steps // 10)
    runs = fit_sweep(
        functools.partial(make, size=size), values, lambda seed, **_: TrainingData(batches[seed]),
        None, loop,
    )  # fmt: skip
    found = np.empty(len(runs), object)
    found[:] = runs
    return found.reshape([len(one) for one in values.values()])


def final_loss(run: Any) -> float:
    """Loss over the last tenth of the steps; inf if it is not finite."""
    return np.inf if run.failure else run.result.records[-1]["loss"]


def changes(size: Size, batches: Mapping[int, Batches]) -> np.ndarray:
    """RMS change of the logits by ten steps, first and last width `[names, 2, seeds]`."""
    ends = dataclasses.replace(size, steps=10, widths=(size.widths[0], size.widths[-1]))
    # At a learning rate of 0, a run keeps its initial parameters.
    runs = train(ends, batches, [0.0, size.checked_rate])
    found = np.zeros(runs.shape[:3])
    for i, j in np.ndindex(found.shape[:2]):
        apply = jax.jit(decoder(size, ends.widths[j], NAMES[i]).apply)
        for seed, pair in enumerate(runs[i, j]):
            before, after = (
                np.asarray(apply({"params": run.result.params}, batches[0][0]["tokens"]).logits)
                for run in pair
            )
            found[i, j, seed] = ((after - before) ** 2).mean() ** 0.5
    return found


def parts(best: np.ndarray, change: np.ndarray) -> list[bool]:
    """Parts of the rule, from log2 of the best rates `[names, widths, seeds]` and changes."""
    growth = change[:, 1] / change[:, 0]
    return [
        bool((np.ptp(best[1], axis=0) <= 1).all()),
        bool((best[0, -1] <= best[0, 0] - 2).all()),
        bool((growth[1] < 1.5).all() and (growth[0] > 2).all()),
    ]


def draw_figure(size: Size, losses: np.ndarray, change: np.ndarray) -> Figure:
    """Losses by learning rate for each parametrization, and changes of the logits by width."""
    figure = Figure(figsize=(12, 4), layout="constrained")
    *panels, last = figure.subplots(1, 3)
    for axes, name, by_width, moved in zip(panels, NAMES, losses, change, strict=True):
        for width, found in zip(size.widths, by_width, strict=True):
            axes.plot(size.learning_rates, found.mean(0), ".-", label=f"width {width}")
        axes.set(xscale="log", xlabel="learning rate", title=f"Loss at the end, {name}")
        last.plot((size.widths[0], size.widths[-1]), moved.mean(1), ".-", label=name)
    last.set(xscale="log", yscale="log", xlabel="width", title="Change of the logits by ten steps")
    panels[0].legend()
    last.legend()
    return figure


def measure(size: Size) -> Finding:
    """Trains every width at every rate, and checks how far ten steps move the logits."""
    windows = Windows(build_stream(python_documents(), byte_tokenizer()), size.length)
    batches = {seed: Batches(windows, size.batch_size, seed=seed) for seed in range(size.seeds)}
    losses = np.vectorize(final_loss)(train(size, batches, size.learning_rates))
    change, best = changes(size, batches), np.log2(size.learning_rates)[losses.argmin(-1)]
    growth = (change[:, 1] / change[:, 0]).round(2)
    summary = f"Widths {size.widths}. " + " ".join(
        f"{name}: log2 of the best rate {best[i].mean(-1).round(1).tolist()} by width, mean of the "
        f"seeds; the change of the logits grows by {growth[i].min()} to {growth[i].max()}."
        for i, name in enumerate(NAMES)
    )
    numbers = {"names": NAMES, "log2_best_rates": best.tolist(), "changes": change.tolist()}
    return Finding(judge(*parts(best, change)), summary, draw_figure(size, losses, change), numbers)


if __name__ == "__main__":
    main(CLAIM, SIZES, measure, runs)
