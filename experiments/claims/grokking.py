"""A Transformer learns modular addition long after it has memorized its training examples.

python experiments/claims/grokking.py
"""

import dataclasses
from typing import Any

import jax
import numpy as np
import optax
from claim import Finding, Runs, judge, main
from matplotlib.figure import Figure

from jaxformer.config import LoopConfig, ModelConfig
from jaxformer.models import Decoder
from jaxformer.sweeps import SweepRun, fit_sweep
from jaxformer.training import TrainingData, Trial, language_model_loss

NAMES = "training", "validation", "without", "start", "end"


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes; `fraction` is the part of all pairs to train on."""

    modulus: int = 53
    fraction: float = 0.4
    width: int = 48
    steps: int = 2500
    learning_rate: float = 5e-3
    eval_every: int = 10
    seeds: int = 3


SIZES = {
    "toy": Size(modulus=11, fraction=0.5, width=4, steps=20, seeds=1),
    "cpu": Size(),
    "accelerator": Size(113, 0.3, 128, steps=40_000, learning_rate=1e-3, eval_every=100),
}


def pairs(size: Size, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """A batch of the pairs to train on and one of the others; "=" is token p."""
    order = np.random.default_rng(seed).permutation(size.modulus**2)
    tokens = np.stack([*divmod(order, size.modulus), np.full_like(order, size.modulus)], axis=1)
    labels = np.full_like(tokens, -1)
    labels[:, 2] = tokens[:, :2].sum(1) % size.modulus
    cut = int(size.fraction * len(order))
    return {
        "training": {"tokens": tokens[:cut], "labels": labels[:cut]},
        "validation": {"tokens": tokens[cut:], "labels": labels[cut:]},
    }


def powers(params: Any, size: Size) -> np.ndarray:
    """Share of each frequency, 1 to p // 2, in the power of the embedding of the numbers."""
    table = np.asarray(params["embedding"]["embedding"])[: size.modulus]
    power = np.square(np.abs(np.fft.rfft(table, axis=0)[1:])).sum(1)
    return np.asarray(power / power.sum())


def decoder(size: Size) -> Decoder:
    """A decoder of one layer."""
    return Decoder(
        ModelConfig(
            vocab_size=size.modulus + 1, max_len=3, num_layers=1, d_model=size.width,
            positions="learned", norm="rms_norm", norm_scale=False, activation="relu",
            use_bias=False, tied_embeddings=False, init_std=size.width**-0.5,
        )
    )  # fmt: skip


def runs(size: Size) -> list[Runs]:
    """What is trained."""
    rows = int(size.fraction * size.modulus**2)
    return [Runs(decoder(size).config, 2 * size.seeds, size.steps, rows, 3)]


def train(size: Size) -> tuple[list[Any], list[SweepRun]]:
    """Initial parameters of every seed, and its run with weight decay, then those without."""
    model = decoder(size)

    @jax.jit
    def accuracy(params: Any, batch: Any) -> jax.Array:
        logits = model.apply({"params": params}, batch["tokens"]).logits
        return (logits[:, 2].argmax(-1) == batch["labels"][:, 2]).mean()

    def data(seed: int, **_: Any) -> TrainingData:
        batches = pairs(size, seed)
        return TrainingData(
            [batches["training"]] * size.steps, lambda: [batches["validation"]],
            scores=lambda params: {
                part: float(accuracy(params, batch)) for part, batch in batches.items()
            },
        )  # fmt: skip

    def make(weight_decay: Any) -> Trial:
        adamw = optax.adamw(size.learning_rate, b2=0.98, weight_decay=weight_decay)
        return Trial(language_model_loss(model), model.init_params, adamw)

    values = {"weight_decay": [1.0, 0.0], "seed": range(size.seeds)}
    loop = LoopConfig(steps=size.steps, log_every=size.steps, eval_every=size.eval_every)
    first = [model.init_params(jax.random.key(seed)) for seed in range(size.seeds)]
    return first, fit_sweep(make, values, data, None, loop)


def rules_hold(figures: dict[str, list[float]]) -> list[bool]:
    """Whether each part of the rule is so, by the numbers of each seed."""
    early, late, without, start, end = (np.array(figures[name]) for name in NAMES)
    delayed = np.isfinite(late) & (late >= 5 * early)
    sparse = (start < 0.4) & (end >= 0.8)
    decayed = np.isfinite(late) & (without >= 2 * late)
    return [bool(part.all()) for part in (delayed, sparse, decayed)]


def measure(size: Size) -> Finding:
    """Follows accuracies and frequencies, with weight decay and without."""
    first, trained = train(size)
    curves = [[record for record in run.result.records if "training" in record] for run in trained]
    decayed, undecayed = curves[: size.seeds], curves[size.seeds :]
    start = [powers(params, size) for params in first]
    end = [powers(run.result.params, size) for run in trained[: size.seeds]]

    def reached(name: str, group: Any) -> list[float]:
        steps = ([record["step"] for record in curve if record[name] >= 0.95] for curve in group)
        return [min(first_steps, default=np.inf) for first_steps in steps]

    shares = [
        [round(float(np.sort(powers_of_seed)[-5:].sum()), 3) for powers_of_seed in spectra]
        for spectra in (start, end)
    ]
    steps = reached("training", decayed), reached("validation", decayed)
    figures = dict(zip(NAMES, (*steps, reached("validation", undecayed), *shares), strict=True))
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for curve, style in zip(curves, ["-"] * size.seeds + [":"] * size.seeds, strict=True):
        for name, color in (("training", "C0"), ("validation", "C1")):
            left.plot(
                [record["step"] for record in curve],
                [record[name] for record in curve],
                color + style,
            )
    left.set(xlabel="training step", xscale="log", title="Accuracy (dotted: no weight decay)")
    left.legend(["training", "validation"])
    for power, style, label in ((start[0], "k.", "at the start"), (end[0], "C0o-", "trained")):
        right.plot(range(1, len(power) + 1), power, style, label=label)
    right.set(xlabel="frequency", title="Share of the embedding's power, seed 0")
    right.legend()
    summary = (
        f"Steps to 95 % in each seed: training {figures['training']}, validation "
        f"{figures['validation']}, without weight decay {figures['without']}. Power of the 5 "
        f"strongest frequencies: {figures['start']} at the start, {figures['end']} at the end."
    )
    return Finding(judge(*rules_hold(figures)), summary, figure, figures)


if __name__ == "__main__":
    main("grokking", SIZES, measure, runs)
