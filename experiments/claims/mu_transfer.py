"""With the maximal update parametrization, the best learning rate does not depend on the width.

python experiments/claims/mu_transfer.py
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import optax
from byte_decoders import byte_decoder, seeded_batches
from claim import Finding, Runs, judge, main
from matplotlib.figure import Figure

from jaxformer import sweeps, training
from jaxformer.config import LoopConfig, ModelConfig, MupConfig
from jaxformer.models import Decoder
from jaxformer.text import Batches


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
    return byte_decoder(
        max_len=size.length, num_layers=size.num_layers, d_model=width,
        num_heads=width // head_dim, layer_execution="scan", mup=mup,
    )  # fmt: skip


def runs(size: Size) -> list[Runs]:
    """What is trained."""
    count = len(NAMES) * len(size.learning_rates) * size.seeds
    models = (decoder(size, width, "standard").config for width in size.widths)
    return [Runs(config, count, size.steps, size.batch_size, size.length) for config in models]


@functools.lru_cache
def factors(config: ModelConfig) -> Any:
    """Factor of the learning rate of each parameter; 1 without μP."""
    draws = [Decoder(width_config).init_params for width_config in (config, config.base)]
    return training.mup_factors(*(jax.eval_shape(draw, jax.random.key(0)) for draw in draws))


def make(learning_rate: Any, width: int, name: str, *, size: Size) -> training.Trial:
    """What a run trains: a decoder, by Adam; with μP, each kernel at the rate of its width."""
    model = decoder(size, width, name)
    adam = optax.adam(optax.linear_schedule(learning_rate, 0.0, size.steps), b2=0.98)
    optimizer = optax.chain(adam, training.scale_by_factors(factors(model.config)))
    return training.Trial(training.language_model_loss(model), model.init_params, optimizer)


def train(size: Size, batches: Mapping[int, Batches], rates: Any) -> list[sweeps.SweepRun]:
    """Trains all names, widths, seeds and rates, of which the last changes first."""
    values = {"name": NAMES, "width": size.widths, "seed": list(batches), "learning_rate": rates}
    loop = LoopConfig(steps=size.steps, log_every=size.steps // 10)
    data = {seed: training.TrainingData(drawn) for seed, drawn in batches.items()}
    make_model = functools.partial(make, size=size)
    return sweeps.fit_sweep(make_model, values, lambda seed, **_: data[seed], None, loop)


@functools.partial(jax.jit, static_argnums=0)
def logits(model: Decoder, params: Any, tokens: Any) -> jax.Array:
    """Logits `[B, T, V]`."""
    return model.apply({"params": params}, tokens).logits


def changes(size: Size, batches: Mapping[int, Batches]) -> np.ndarray:
    """RMS change of the logits by ten steps, first and last width `[names, 2, seeds]`."""
    ends = dataclasses.replace(size, steps=10, widths=(size.widths[0], size.widths[-1]))
    # At a learning rate of 0, a run keeps its initial parameters.
    changes_by_rate = []
    for run in train(ends, batches, [0.0, size.checked_rate]):
        model = decoder(size, run.values["width"], run.values["name"])
        changes_by_rate.append(logits(model, run.result.params, batches[0][0]["tokens"]))
    pairs = np.array(changes_by_rate, np.float64).reshape(len(NAMES), 2, size.seeds, 2, -1)
    return np.sqrt((np.diff(pairs, axis=3) ** 2).mean((3, 4)))


def rules_hold(best: np.ndarray, change: np.ndarray) -> list[bool]:
    """Parts of the rule, from log2 of the best rates `[names, widths, seeds]` and changes."""
    growth = change[:, 1] / change[:, 0]
    stays, falls = np.ptp(best[1], axis=0) <= 1, best[0, -1] <= best[0, 0] - 2
    return [bool(part.all()) for part in (stays, falls, (growth[1] < 1.5) & (growth[0] > 2))]


def draw_figure(size: Size, losses: np.ndarray, change: np.ndarray) -> Figure:
    """Losses by learning rate for each parametrization, and changes of the logits by width."""
    figure = Figure(figsize=(12, 4), layout="constrained")
    *panels, last = figure.subplots(1, 3)
    for axes, name, by_width, moved in zip(panels, NAMES, losses, change, strict=True):
        for width, losses_of_width in zip(size.widths, by_width, strict=True):
            axes.plot(size.learning_rates, losses_of_width.mean(0), ".-", label=f"width {width}")
        axes.set(xscale="log", xlabel="learning rate", title=f"Loss at the end, {name}")
        last.plot((size.widths[0], size.widths[-1]), moved.mean(1), ".-", label=name)
    last.set(xscale="log", yscale="log", xlabel="width", title="Change of the logits by ten steps")
    panels[0].legend()
    last.legend()
    return figure


def measure(size: Size) -> Finding:
    """Trains every width at every rate, and checks how far ten steps move the logits."""
    _, batches = seeded_batches(size)
    runs = train(size, batches, size.learning_rates)
    ends = [np.inf if run.failure else run.result.records[-1]["loss"] for run in runs]
    losses = np.reshape(ends, (len(NAMES), len(size.widths), size.seeds, -1))
    change, best = changes(size, batches), np.log2(size.learning_rates)[losses.argmin(-1)]
    growth = (change[:, 1] / change[:, 0]).round(2)
    summary = f"Widths {size.widths}. " + " ".join(
        f"{name}: log2 of the best rate {best[i].mean(-1).round(1).tolist()} by width, mean of the "
        f"seeds; the change of the logits grows by {growth[i].min()} to {growth[i].max()}."
        for i, name in enumerate(NAMES)
    )
    numbers = {"names": NAMES, "log2_best_rates": best.tolist(), "changes": change.tolist()}
    return Finding(
        judge(*rules_hold(best, change)), summary, draw_figure(size, losses, change), numbers
    )


if __name__ == "__main__":
    main("mu_transfer", SIZES, measure, runs)
