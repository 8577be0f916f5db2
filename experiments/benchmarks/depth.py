"""Trains the config `depth`, narrowed for a CPU, at several depths and learning rates.

All rules of its table [by_depth] apply, but 12 layers are 192 wide instead of 768, in heads of 16.
The text is Python's own library, as bytes. Learning rates are multiples of the rate that the rules
give.

Run: python experiments/benchmarks/depth.py --depths 2 3 4 --multiples 0.5 1 2
"""

import argparse
import itertools
import math
import os
import pathlib
import tempfile
import time
from typing import Any

from jaxformer.config import ExperimentConfig
from jaxformer.config.depth import at_depth
from jaxformer.config.files import config_of_file, read_tables
from jaxformer.config.reading import with_values
from jaxformer.sweeps import train_sweep

ROWS, LENGTH, WIDTH, LAYERS = 113, 128, 192, 12
# Settings that differ from those of the config; of those with a rule, at 12 layers.
NARROW: dict[str, Any] = {
    "data.paths": [str(pathlib.Path(os.__file__).parent / "*.py")],
    "data.validation_fraction": 0.05,
    "tokenizer.kind": "byte",
    "tokenizer.vocab_size": None,
    "model.vocab_size": None,
    "model.max_len": LENGTH,
    "model.d_model": WIDTH,
    "model.mup.d_model": WIDTH,
    "model.dtype": "float32",
    "model.remat": "none",
    "training.batch_size": ROWS,  # 32 at 4 layers
    "training.accumulate_steps": 1,
    "training.eval_every": 10**6,  # at the end alone
    "training.checkpoint_every": 10**6,
}


def layer_params(layers: int, width: int) -> int:
    return 12 * layers * width**2


def config_at(depth: int, options: argparse.Namespace, folder: pathlib.Path) -> ExperimentConfig:
    """The narrowed config at a depth, with its tokens in proportion to its parameters."""
    tokens = options.tokens_per_param * layer_params(LAYERS, WIDTH)
    steps, tables = max(1, round(tokens / (ROWS * LENGTH))), read_tables("depth")
    optimizer = tables["optimizer"]
    decay = optimizer["weight_decay"] * optimizer["learning_rate"] * tables["training"]["steps"]
    tables = with_values(
        tables,
        {
            **NARROW,
            "training.steps": steps,
            "optimizer.learning_rate": options.rate,
            "optimizer.weight_decay": decay / (options.rate * steps),  # as much in all steps
            "out": str(folder / f"depth{depth}"),
        },
    )
    rules = tables["by_depth"] | {"training.batch_size": {"power": 1.149, "multiple_of": 2}}
    return config_of_file("depth", lambda: at_depth({**tables, "by_depth": rules}, depth))


def losses_at(config: ExperimentConfig, multiples: list[float]) -> list[float]:
    """Validation loss in nats per byte after training at each multiple of the learning rate."""
    rates = [multiple * config.optimizer.learning_rate for multiple in multiples]
    runs = train_sweep(config, {"optimizer.learning_rate": rates})
    losses = []
    for run in runs:
        evaluation = run.result.evaluation
        losses.append(math.inf if run.failure or evaluation is None else evaluation.loss)
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--multiples", type=float, nargs="+", default=[0.5, 1.0, 2.0])
    parser.add_argument("--rate", type=float, default=0.004, help="learning rate at 12 layers")
    parser.add_argument("--tokens-per-param", type=float, default=20.0)
    options = parser.parse_args()
    points, lines = [], []
    with tempfile.TemporaryDirectory() as name:
        for depth in options.depths:
            config, began = config_at(depth, options, pathlib.Path(name)), time.perf_counter()
            losses = losses_at(config, options.multiples)
            model, training = config.model, config.training
            params = layer_params(depth, model.d_model)
            tokens = training.steps * training.batch_size * model.max_len
            compute = 6 * (params + 256 * model.d_model) * tokens  # without scores of attention
            points.append((math.log(compute), math.log(min(losses))))
            by_rate = "  ".join(f"{loss:.4f}" for loss in losses)
            best = options.multiples[losses.index(min(losses))]
            lines.append(
                f"{depth:5}  {params:9,}  {tokens:11,}  {compute:.2e}  {training.steps:5} x "
                f"{training.batch_size:<3}  {config.optimizer.learning_rate:.2e}  {by_rate}  "
                f"{best:g}  {time.perf_counter() - began:.0f} s"
            )
    print("depth  parameters  tokens  FLOPs  steps x rows  rate  loss at its multiples ", end="")
    print(" ".join(f"{multiple:g}" for multiple in options.multiples), " best  time")
    print("\n".join(lines))
    for (x, y), (next_x, next_y) in itertools.pairwise(points):
        print(f"loss ~ FLOPs^{(next_y - y) / (next_x - x):.3f} between two depths")


if __name__ == "__main__":
    main()
