"""Label smoothing makes a translator's perplexity worse, and its translations better.

python experiments/claims/label_smoothing.py
"""

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from claim import Finding, Runs, judge, main
from matplotlib.figure import Figure

from jaxformer.config import load_config
from jaxformer.sweeps import sweep_configs, train_sweep

METRICS = ("perplexity", "bleu", "exact")
Found = dict[str, np.ndarray]  # metrics [smoothing, seeds, evaluations], by name


@dataclasses.dataclass(frozen=True)
class Size:
    """A config and the keys that are changed in it."""

    config: str
    steps: int
    changes: Mapping[str, Any]
    seeds: int = 3
    smoothing: tuple[float, float] = (0.0, 0.1)

    @property
    def values(self) -> Mapping[str, Sequence[Any]]:
        """Values of the keys, as of a sweep."""
        return {key: [value] for key, value in self.changes.items()} | {
            "training.steps": [self.steps], "training.label_smoothing": self.smoothing,
            "seed": range(self.seeds),
        }  # fmt: skip


TOY = {
    "data.synthetic.num_pairs": 64, "data.synthetic.num_validation": 8, "model.num_layers": 1,
    "model.d_model": 8, "training.batch_tokens": 128, "training.log_every": 1,
    "training.eval_every": 1, "training.checkpoint_every": 2, "translation.metrics_pairs": 8,
}  # fmt: skip
SMALL = {
    "data.num_buckets": 1, "model.max_len": 12, "model.d_model": 64, "model.d_ff": 192,
    "model.init_std": 0.1, "optimizer.learning_rate": 8e-3, "schedule.warmup_steps": 60,
    "training.batch_tokens": 768, "training.log_every": 100,
    "training.eval_every": 100, "training.checkpoint_every": 300,
    "translation.metrics_pairs": 2238, "samples.prompts": (),
}  # fmt: skip
SIZES = {
    "toy": Size("reverse", 2, TOY, seeds=1),
    "cpu": Size("phrasebook_en_kn", 300, SMALL),
    "accelerator": Size(
        "transformer_base",
        100_000,
        {"training.eval_every": 10_000, "translation.metrics_pairs": 3000},
    ),
}


def runs(size: Size) -> list[Runs]:
    """What is trained; rows are counted with all the padding that they may have."""
    named = sweep_configs(load_config(size.config), size.values)
    _, config = next(iter(named.values()))
    model = dataclasses.replace(config.model, vocab_size=config.tokenizer.vocab_size)
    rows = config.training.batch_tokens // model.max_len
    return [Runs(model, len(named), size.steps, rows, model.max_len)]


def train(size: Size) -> tuple[list[int], Found]:
    """Trains every smoothing and seed; returns steps and metrics of the evaluations."""
    with tempfile.TemporaryDirectory() as folder:
        config = dataclasses.replace(load_config(size.config), out=folder)
        trained = train_sweep(config, size.values)
    evaluated = [[record for record in run.result.records if "bleu" in record] for run in trained]
    shape = len(size.smoothing), size.seeds, -1

    def table(name: str) -> np.ndarray:
        return np.array([[float(record[name]) for record in run] for run in evaluated]).reshape(
            shape
        )

    tables = {name: table(name) for name in ("bleu", "exact")}
    tables["perplexity"] = np.exp(table("validation_loss"))
    return [record["step"] for record in evaluated[0]], tables


def is_saturated(tables: Found) -> bool:
    """Whether translations without smoothing leave nothing to improve."""
    return bool(tables["bleu"][0, :, -1].mean() > 97)


def rules_hold(tables: Found) -> list[bool]:
    """Whether smoothing raises perplexity, BLEU and accuracy in every seed."""
    gains = {name: tables[name][1, :, -1] - tables[name][0, :, -1] for name in METRICS}
    can_improve = not is_saturated(tables)
    return [
        bool((gains["perplexity"] > 0).all()),
        can_improve and bool((gains["bleu"] >= 0.5).all()),
        can_improve and bool((gains["exact"] > 0).all()),
    ]


def described(values: Sequence[float]) -> str:
    """A range of numbers."""
    return f"{min(values):.3g} to {max(values):.3g}"


def measure(size: Size) -> Finding:
    """Trains with and without smoothing, and compares the ends."""
    steps, tables = train(size)
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    for axes, name in zip(figure.subplots(1, 3), METRICS, strict=True):
        for index, smoothing in enumerate(size.smoothing):
            axes.plot(steps, tables[name][index].T, f"C{index}.-", alpha=0.3)
            axes.plot(steps, tables[name][index].mean(0), f"C{index}", label=f"{smoothing:g}")
        axes.set(xlabel="step", title=name)
    axes.legend(title="label smoothing")
    figure.axes[0].set_yscale("log")
    ends = {
        name: " and ".join(described(tables[name][index, :, -1]) for index in range(2))
        for name in METRICS
    }
    summary = (
        f"Without and with smoothing, at the end: perplexity {ends['perplexity']}, BLEU "
        f"{ends['bleu']}, share of exact translations {ends['exact']}."
    )
    if is_saturated(tables):
        summary += " BLEU is saturated."
    numbers = {name: values.tolist() for name, values in tables.items()}
    return Finding(judge(*rules_hold(tables)), summary, figure, {"steps": steps, **numbers})


if __name__ == "__main__":
    main("label_smoothing", SIZES, measure, runs)
