"""Times a sweep over seeds against the same runs one after the other.

python experiments/benchmarks/sweep.py

Both train decoders of 0.1 M parameters on random bytes and write nothing. The time of the steps is
the difference between a long and a short training, which leaves out compiling and starting.
"""

import argparse
import contextlib
import io
import time
from collections.abc import Callable

import numpy as np
import optax

from jaxformer.config import LoopConfig, ModelConfig
from jaxformer.models import Decoder
from jaxformer.training import (
    SingleRunner,
    TrainingData,
    Trial,
    fit,
    fit_sweep,
    language_model_loss,
)

SHORT = 5  # steps


def main() -> None:
    """Prints seconds of both, whole and of the steps, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="steps to time")
    options = parser.parse_args()
    config = ModelConfig(
        vocab_size=256, max_len=64, num_layers=2, d_model=options.width, num_heads=4,
        dropout_rate=0.0,
    )  # fmt: skip
    model = Decoder(config)
    rng = np.random.default_rng(0)
    long = SHORT + options.steps
    tokens = [rng.integers(0, 256, (16, 65), np.int32) for _ in range(long)]
    data = TrainingData([{"tokens": t[:, :-1], "labels": t[:, 1:]} for t in tokens])

    def make() -> Trial:
        return Trial(language_model_loss(model), model.init_params, optax.adamw(1e-3))

    def together(steps: int) -> None:
        fit_sweep(make, {"seed": range(options.seeds)}, data, None, LoopConfig(steps=steps))

    def in_turn(steps: int) -> None:
        for seed in range(options.seeds):
            loop = LoopConfig(steps=steps)
            fit(make(), data, None, loop, seed=seed, runner=SingleRunner())

    ways = {"together": together, "one after the other": in_turn}
    whole: dict[str, list[float]] = {name: [] for name in ways}
    steps: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, train in ways.items():
            short, all_of_it = seconds(train, SHORT), seconds(train, long)
            whole[name].append(all_of_it)
            steps[name].append(all_of_it - short)
    for what, found in {f"{long} steps, compiling included": whole, "steps alone": steps}.items():
        for name, times in found.items():
            print(f"{what}, {name}: {min(times):.2f} s (median {np.median(times):.2f})")
        ratios = np.divide(found["one after the other"], found["together"])
        print(f"{what}: {np.median(ratios):.2f} times as fast together (median of rounds)")


def seconds(train: Callable[[int], None], steps: int) -> float:
    """Time of a training, whose lines are not shown."""
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        train(steps)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
