"""Muon needs fewer steps than AdamW to the same loss, each at its best learning rate.

python experiments/claims/muon.py
"""

import dataclasses
import functools
import time
from typing import Any

import jax
import numpy as np
import optax
from byte_decoders import byte_decoder, validation_split
from claim import Finding, Runs, judge, main
from matplotlib.figure import Figure

from jaxformer import models, sweeps, training
from jaxformer.config import AdamWConfig, LoopConfig, MuonConfig, ScheduleConfig

OPTIMIZERS = {"AdamW": AdamWConfig(learning_rate=1.0), "Muon": MuonConfig(learning_rate=1.0)}


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes; models as narrow train badly by AdamW from the library's initial scale of 0.02."""

    widths: tuple[int, ...] = (32, 64)
    num_layers: int = 2
    head_dim: int = 16
    length: int = 64
    batch_size: int = 8
    steps: int = 250
    shares: tuple[float, ...] = (0.3, 0.52, 1 / 1.4, 1.0)  # ascending
    learning_rates: tuple[float, ...] = (4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2, 1.28e-1)
    seeds: int = 3


SIZES = {
    "toy": Size((8,), 1, 8, 8, 2, steps=20, shares=(1.0,), learning_rates=(1e-2,), seeds=1),
    "cpu": Size(),
    "accelerator": Size((512, 1536), 32, 64, 4096, batch_size=128, steps=5000),
}


def decoder(size: Size, width: int) -> models.Decoder:
    """A decoder of bytes."""
    return byte_decoder(
        max_len=size.length, num_layers=size.num_layers, d_model=width,
        num_heads=width // size.head_dim, norm="rms_norm", use_bias=False, init_std=width**-0.5,
    )  # fmt: skip


def runs(size: Size) -> list[Runs]:
    """What is trained: AdamW with all steps, and Muon with each share of them."""
    steps, count = round((1 + sum(size.shares)) * size.steps), len(size.learning_rates) * size.seeds
    models = (decoder(size, width).config for width in size.widths)
    return [Runs(config, count, steps, size.batch_size, size.length) for config in models]


def trial(size: Size, name: str, steps: int, width: int, rate: Any) -> training.Trial:
    """A decoder, and an optimizer of peak rate 1 whose updates are scaled by `rate`."""
    model = decoder(size, width)
    schedule = ScheduleConfig(warmup_steps=steps // 10, decay_steps=steps, final_scale=0)
    return training.Trial(
        training.language_model_loss(model),
        model.init_params,
        optax.chain(training.make_optimizer(OPTIMIZERS[name], schedule), optax.scale(rate)),
    )


def train(size: Size, name: str, share: float, data: Any) -> np.ndarray:
    """Final validation losses `[widths, rates, seeds]` of a share of the steps."""
    steps, rates, seeds = round(share * size.steps), size.learning_rates, range(size.seeds)
    values = {"width": size.widths, "rate": rates, "seed": seeds}
    loop = LoopConfig(steps=steps, log_every=steps, eval_every=steps)
    make = functools.partial(trial, size, name, steps)
    trained = sweeps.fit_sweep(make, values, data, None, loop)
    ends = [np.inf if run.failure else run.result.evaluation.loss for run in trained]
    return np.reshape(ends, (len(size.widths), len(rates), len(seeds)))


def step_seconds(size: Size, batch: Any, repeats: int = 50) -> dict[str, float]:
    """Median time of a training step with each optimizer, measured in turn."""
    create = jax.jit(training.TrainState.create, static_argnames="optimizer")
    steps, states, times = {}, {}, {name: [] for name in OPTIMIZERS}
    for name in times:
        loss, draw, optimizer, *_ = trial(size, name, size.steps, size.widths[-1], 1e-3)
        states[name] = create(draw(jax.random.key(0)), optimizer=optimizer)
        steps[name] = jax.jit(training.make_train_step(loss, optimizer, seed=0))
    for _ in range(repeats):
        for name, step in steps.items():  # which the first call compiles
            began = time.perf_counter()
            states[name], _ = jax.block_until_ready(step(states[name], batch))
            times[name].append(time.perf_counter() - began)
    return {name: float(np.median(seconds)) for name, seconds in times.items()}


def at_best_rate(losses: np.ndarray) -> np.ndarray:
    """Losses `[widths, seeds, ...]` at the rates of smallest mean, from `[widths, rates, ...]`."""
    best = losses.mean(2, keepdims=True).argmin(1, keepdims=True)
    return np.take_along_axis(losses, best, axis=1)[:, 0]


def share_needed(shares: np.ndarray, losses: np.ndarray, target: float) -> float:
    """Share at which losses `[shares]` reach a target; the first if it does, inf if none does."""
    falling = -np.minimum.accumulate(losses)
    return np.exp(np.interp(-target, falling, np.log(shares), right=np.inf))


def measure(size: Size) -> Finding:
    """Trains AdamW with all steps and Muon with each share, at every rate, and times both."""
    batches, validation = validation_split(size)

    def data(seed: int, **_: Any) -> training.TrainingData:
        return training.TrainingData(batches[seed], lambda: [validation])

    adamw = train(size, "AdamW", 1.0, data)
    muon = np.stack([train(size, "Muon", share, data) for share in size.shares], axis=-1)
    targets, reached = at_best_rate(adamw), at_best_rate(muon)  # [widths, seeds (, shares)]
    needed = np.vectorize(share_needed, signature="(s),(s),()->()")(size.shares, reached, targets)
    half, whole = (bool((needed <= limit).all()) for limit in (0.52, 1.0))
    seconds = step_seconds(size, data(0).batches[0])
    figure = Figure(figsize=(9, 4), layout="constrained")
    names = [f"Muon, {share:.0%} of the steps" for share in size.shares]
    for index, width in enumerate(size.widths):
        axes = figure.add_subplot(1, len(size.widths), index + 1, xscale="log")
        axes.plot(size.learning_rates, adamw[index].mean(-1), "k.--", label="AdamW")
        axes.plot(size.learning_rates, muon[index].mean(1), ".-", label=names)
        axes.set(xlabel="learning rate", title=f"Loss at the end, width {width}")
        axes.minorticks_off()
        axes.legend()
    faster = ", ".join(f"{1 / shares.mean():.2f}" for shares in needed)
    summary = (
        f"Muon needs {needed.min():.2f} to {needed.max():.2f} of AdamW's steps; mean speed-up by "
        f"width: {faster}. Its step takes {seconds['Muon'] / seconds['AdamW']:.2f} times as long."
    )
    numbers = {"needed": needed.tolist(), "AdamW": adamw.tolist(), "Muon": muon.tolist()}
    return Finding(judge(half, whole), summary, figure, numbers | {"seconds": seconds})


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)  # which the runs of a sweep are split over
    main("muon", SIZES, measure, runs)
