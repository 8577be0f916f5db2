"""Times runs of one process that differ in learning rate and seed: in turn, and as a sweep.

Each trains a decoder of 0.1 M parameters by default, in a run folder of its own, as `train_run`
does. The first of them compiles: the cache of compiled programs is empty.

Run: python experiments/benchmarks/many_runs.py --rates 3 --seeds 4
"""

import argparse
import contextlib
import dataclasses
import io
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from jaxformer.config import (
    AdamWConfig,
    DataConfig,
    ExperimentConfig,
    ModelConfig,
    TokenizerConfig,
    TrainingConfig,
)
from jaxformer.runs import train_run
from jaxformer.sweeps import train_sweep

TEXT = "the quick brown fox jumps over the lazy dog. "


def experiment(folder: pathlib.Path, width: int, steps: int) -> ExperimentConfig:
    text = folder / "text.txt"
    text.write_text(TEXT * 4000, encoding="utf-8")
    return ExperimentConfig(
        model=ModelConfig(max_len=64, num_layers=2, d_model=width, num_heads=4),
        data=DataConfig(paths=(str(text),)),
        tokenizer=TokenizerConfig(kind="byte"),
        optimizer=AdamWConfig(learning_rate=1e-3),
        training=TrainingConfig(steps=steps, batch_size=16),
    )


def seconds(train: Callable[[], Any]) -> tuple[float, float]:
    """Seconds that a training takes, and CPU seconds; its lines are not shown."""
    began, began_on_core = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        train()
    return time.perf_counter() - began, time.process_time() - began_on_core


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    if options.rates * options.seeds < 2:
        parser.error("--rates times --seeds must be at least 2")
    rates = [1e-3 * (1 + index) for index in range(options.rates)]
    seeds = list(range(options.seeds))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["XDG_CACHE_HOME"] = name
        os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
        base = experiment(folder, options.width, options.steps)

        def train(rate: float, seed: int) -> None:
            train_run(
                dataclasses.replace(
                    base, out=str(folder / f"{rate},{seed}"), seed=seed,
                    optimizer=AdamWConfig(learning_rate=rate),
                )
            )  # fmt: skip

        pairs = [(rate, seed) for seed in seeds for rate in rates]
        times = [seconds(lambda pair=pair: train(*pair)) for pair in pairs]
        print(f"first run: {times[0][0]:.2f} s ({times[0][1]:.2f} CPU seconds)")
        for unit, index in (("s", 0), ("CPU seconds", 1)):
            further = [row[index] for row in times[1:]]
            median = statistics.median(further)
            print(f"each further run: min {min(further):.2f} {unit}, median {median:.2f}")
        values = {"optimizer.learning_rate": rates, "seed": seeds}
        sweep = dataclasses.replace(base, out=str(folder / "sweep"))
        whole, on_core = seconds(lambda: train_sweep(sweep, values))
        count = len(pairs)
        print(
            f"sweep of the {count}, compiling included: {whole:.2f} s, {whole / count:.2f} a run "
            f"({on_core / count:.2f} CPU seconds)"
        )


if __name__ == "__main__":
    main()
