"""One head is too few and many small heads are too many; wider models are better.

python experiments/claims/heads_and_widths.py
"""

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from claim import Finding, Runs, judge, main
from matplotlib.figure import Figure

from jaxformer.config import ExperimentConfig, load_config
from jaxformer.sweeps import sweep_configs, train_sweep

KEYS = {"A": "model.num_heads", "B": "model.head_dim", "C": "model.d_model"}
Losses = dict[str, dict[int, np.ndarray]]  # by row and value: validation losses of the seeds


@dataclasses.dataclass(frozen=True)
class Size:
    """A config, keys that are changed in it for the base, and the other values of each row."""

    config: str
    steps: int
    changes: Mapping[str, Any]
    heads: tuple[int, ...]
    head_dims: tuple[int, ...]
    widths: tuple[int, ...]
    seeds: int = 3

    @property
    def base(self) -> ExperimentConfig:
        """The experiment of which each row changes one key."""
        changes = {key: [value] for key, value in self.changes.items()}
        changes["training.steps"] = [self.steps]
        ((_, config),) = sweep_configs(load_config(self.config), changes).values()
        return config

    @property
    def rows(self) -> dict[str, dict[str, Sequence[int]]]:
        """What each row sweeps over: not over the base again, which is in the first."""
        model = self.base.model
        values = {
            "A": sorted({*self.heads, model.num_heads}), "B": self.head_dims, "C": self.widths
        }  # fmt: skip
        swept = {row: {KEYS[row]: settings} for row, settings in values.items()}
        swept["B"]["model.value_head_dim"] = [model.d_model // model.num_heads]
        return swept


TOY = {
    "data.synthetic.num_pairs": 64, "data.synthetic.num_validation": 8, "model.num_layers": 1,
    "model.d_model": 8, "training.batch_tokens": 128, "training.log_every": 1,
    "training.eval_every": 2, "training.checkpoint_every": 2, "translation.metrics_pairs": 0,
    "samples.prompts": (),
}  # fmt: skip
SMALL = {
    "data.num_buckets": 1, "model.max_len": 12, "model.d_model": 64, "model.d_ff": 192,
    "model.init_std": 0.1, "optimizer.learning_rate": 8e-3, "schedule.warmup_steps": 60,
    "training.batch_tokens": 768, "training.log_every": 100, "training.eval_every": 300,
    "training.checkpoint_every": 300, "translation.metrics_pairs": 0, "samples.prompts": (),
}  # fmt: skip
SIZES = {
    "toy": Size("reverse", 2, TOY, (1,), (4,), (16,), seeds=1),
    "cpu": Size("phrasebook_en_kn", 300, SMALL, (1, 16), (4, 8), (32, 128)),
    "accelerator": Size(
        "transformer_base", 100_000, {"translation.metrics_pairs": 0}, (1, 4, 16, 32), (16, 32),
        (256, 1024),
    ),
}  # fmt: skip


def runs(size: Size) -> list[Runs]:
    """What is trained; rows are counted with all the padding that they may have."""
    groups = []
    for swept in size.rows.values():
        for _, config in sweep_configs(size.base, swept).values():
            model = dataclasses.replace(config.model, vocab_size=config.tokenizer.vocab_size)
            sentences = config.training.batch_tokens // model.max_len
            groups.append(Runs(model, size.seeds, size.steps, sentences, model.max_len))
    return groups


def train(size: Size) -> Losses:
    """Trains every row, and returns the validation losses at the end."""
    losses: Losses = {}
    for row, swept in size.rows.items():
        with tempfile.TemporaryDirectory() as folder:
            config = dataclasses.replace(size.base, out=folder)
            trained = train_sweep(config, swept | {"seed": range(size.seeds)})
        ends = np.array([float(run.result.records[-1]["validation_loss"]) for run in trained])
        losses[row] = dict(zip(swept[KEYS[row]], ends.reshape(-1, size.seeds), strict=True))
    model = size.base.model
    base = losses["A"][model.num_heads]
    losses["B"][model.d_model // model.num_heads] = losses["C"][model.d_model] = base
    return {row: dict(sorted(by_value.items())) for row, by_value in losses.items()}


def rules_hold(losses: Losses, num_heads: int) -> list[bool]:
    """Whether one head, the most and the smallest are worse than the base, and widths better."""
    heads, base = losses["A"], losses["A"][num_heads]
    smallest, widths = losses["B"][min(losses["B"])], list(losses["C"].values())
    return [
        *(
            bool((losses_of_value > base).all())
            for losses_of_value in (heads[1], heads[max(heads)], smallest)
        ),
        bool((np.diff(widths, axis=0) < 0).all()),
    ]


def measure(size: Size) -> Finding:
    """Trains every row of the table, and draws the perplexities."""
    losses = train(size)
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    rows_of_means = []
    panels = figure.subplots(1, 3)
    for axes, (row, by_value) in zip(panels, losses.items(), strict=True):
        values, perplexities = list(by_value), np.exp(list(by_value.values()))
        axes.plot(values, perplexities, "C0.")
        axes.plot(values, perplexities.mean(1), "C0-")
        axes.set(xscale="log", title=f"Rows {row}: {KEYS[row]}")
        axes.set_xticks(values, map(str, values))
        axes.minorticks_off()
        means = zip(values, perplexities.mean(1), strict=True)
        rows_of_means.append(
            f"{KEYS[row]} " + ", ".join(f"{value}: {mean:.3f}" for value, mean in means)
        )
    panels[0].set_ylabel("perplexity of the validation set")
    summary = f"Perplexity by value, mean of the seeds. {'; '.join(rows_of_means)}."
    verdict = judge(*rules_hold(losses, size.base.model.num_heads))
    numbers = {row: {value: end.tolist() for value, end in losses[row].items()} for row in losses}
    return Finding(verdict, summary, figure, numbers)


if __name__ == "__main__":
    main("heads_and_widths", SIZES, measure, runs)
