"""Normalized queries and keys, and z-loss, keep training stable at high learning rates.

python experiments/claims/instability.py
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from byte_decoders import VOCABULARY, byte_decoder, validation_split
from claim import Finding, Runs, judge, main
from matplotlib.figure import Figure

from jaxformer.config import LoopConfig, ScheduleConfig
from jaxformer.models import Decoder, Taps
from jaxformer.sweeps import fit_sweep
from jaxformer.text import Batches
from jaxformer.training import TrainingData, Trial, language_model_loss, make_schedule

VARIANTS = {"both": 1e-4, "no qk-norm": 1e-4, "no z-loss": 0.0}  # weight of the z-loss
DIVERGED = {"validation_loss": np.inf, "largest_score": np.inf, "log_normalizer": np.inf}


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes; smaller models have higher optimal rates, so the rates are above the paper's."""

    num_layers: int = 3
    width: int = 64
    heads: int = 2
    length: int = 64
    batch_size: int = 8
    steps: int = 300
    learning_rates: tuple[float, ...] = (3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
    seeds: int = 3


RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)  # of the paper
SIZES = {
    "toy": Size(1, 8, length=8, batch_size=2, steps=20, learning_rates=(1e-2, 1.0), seeds=1),
    "cpu": Size(),
    "accelerator": Size(3, 512, 8, 512, 256, steps=100_000, learning_rates=RATES),
}


def decoder(size: Size, *, qk_norm: bool) -> Decoder:
    """A decoder of bytes."""
    return byte_decoder(
        max_len=size.length, num_layers=size.num_layers, d_model=size.width, num_heads=size.heads,
        use_bias=False, tied_embeddings=False, init_std=size.width**-0.5, qk_norm=qk_norm,
    )  # fmt: skip


def runs(size: Size) -> list[Runs]:
    """What is trained."""
    model, count = decoder(size, qk_norm=True).config, len(size.learning_rates) * size.seeds
    return [Runs(model, len(VARIANTS) * count, size.steps, size.batch_size, size.length)]


def train(
    size: Size, batches: Mapping[int, Batches], validation: Any
) -> dict[str, dict[str, np.ndarray]]:
    """Final loss, largest score and mean log-normalizer, by variant `[rates, seeds]`."""
    schedule = ScheduleConfig(warmup_steps=size.steps // 20, decay_steps=size.steps, final_scale=0)
    with_norm, without = (decoder(size, qk_norm=on) for on in (True, False))
    models = {"both": with_norm, "no qk-norm": without, "no z-loss": with_norm}

    def make(learning_rate: Any, variant: str) -> Trial:
        model = models[variant]
        loss, plain = (language_model_loss(model, z_loss=z) for z in (VARIANTS[variant], 0.0))
        decay = 1e-4 / learning_rate  # independent of the rate, by which adamw multiplies it
        adamw = optax.adamw(make_schedule(learning_rate, schedule), b2=0.95, weight_decay=decay)
        optimizer = optax.chain(optax.clip_by_global_norm(1.0), adamw)
        return Trial(loss, model.init_params, optimizer, validation_loss=plain)

    @jax.jit(static_argnames="model")
    def inside(params: Any, model: Decoder) -> dict[str, jax.Array]:
        output = model.apply({"params": params}, validation["tokens"], taps=Taps(("scores",)))
        seen = jnp.tril(jnp.ones((size.length, size.length), bool))
        return {
            "largest_score": jnp.where(seen, output.taps["scores"], -jnp.inf).max(),
            "log_normalizer": jax.nn.logsumexp(output.logits, axis=-1).mean(),
        }

    def data(variant: str, seed: int, **_: Any) -> TrainingData:
        inspect = functools.partial(inside, model=models[variant])
        return TrainingData(batches[seed], lambda: [validation], scores=inspect)

    rates, seeds = size.learning_rates, list(batches)
    values = {"variant": list(VARIANTS), "learning_rate": rates, "seed": seeds}
    loop = LoopConfig(steps=size.steps, log_every=size.steps, eval_every=size.steps)
    trained = fit_sweep(make, values, data, None, loop)
    ends = [DIVERGED if run.failure else run.result.evaluation.figures for run in trained]
    shape = len(VARIANTS), len(rates), len(seeds)
    tables = {name: np.reshape([float(end[name]) for end in ends], shape) for name in DIVERGED}
    return {name: dict(zip(VARIANTS, table, strict=True)) for name, table in tables.items()}


def sensitivity(losses: np.ndarray) -> np.ndarray:
    """LR sensitivity `[seeds]` of losses `[rates, seeds]`."""
    return np.minimum(losses, np.log(VOCABULARY)).mean(0) - losses.min(0)


def rules_hold(sensitivities: dict[str, np.ndarray], scores: dict[str, np.ndarray]) -> list[bool]:
    """The three parts of the rule, from sensitivities and the scores at the highest rate."""
    limit = 1.25 * sensitivities["both"]
    more = [sensitivities[name] >= limit for name in ("no qk-norm", "no z-loss")]
    return [bool(part.all()) for part in (*more, scores["no qk-norm"] > 10 * scores["both"])]


def measure(size: Size) -> Finding:
    """Trains at every rate, with both mitigations and without each."""
    tables = train(size, *validation_split(size))
    figure = Figure(figsize=(12, 4), layout="constrained")
    for place, (name, table) in enumerate(tables.items()):
        axes = figure.add_subplot(1, 3, place + 1, xlabel="learning rate", xscale="log")
        for color, (variant, values) in zip(("C0", "C1", "C2"), table.items(), strict=True):
            axes.plot(size.learning_rates, values.mean(1), color, label=variant)
            axes.plot(size.learning_rates, values, f"{color}.")
        axes.set_title(f"{name.replace('_', ' ')} at the end")
    figure.axes[0].legend()
    figure.axes[1].set_yscale("log")
    sensitive = {name: sensitivity(values) for name, values in tables["validation_loss"].items()}
    top = {name: values[-1] for name, values in tables["largest_score"].items()}
    shown = [
        ", ".join(
            f"{name} {values.min():.3g} to {values.max():.3g}" for name, values in table.items()
        )
        for table in (sensitive, top)
    ]
    summary = f"LR sensitivity: {shown[0]}. Largest score at the highest rate: {shown[1]}."
    numbers = jax.tree.map(np.ndarray.tolist, {"sensitivity": sensitive, **tables})
    return Finding(judge(*rules_hold(sensitive, top)), summary, figure, numbers)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)  # which the runs of a sweep are split over
    main("instability", SIZES, measure, runs)
