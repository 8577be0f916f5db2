"""jaxformer train and evaluate."""

import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxformer.cli.commands import Evaluate
from jaxformer.cli.overrides import override_config
from jaxformer.config import config_to_toml, load_config

if TYPE_CHECKING:
    from jaxformer.runs import Run

__all__ = ["evaluate", "train"]


def train(path: str, overrides: Sequence[str]) -> None:
    """Trains, or resumes, the run of a config with its overrides, and reports on the result."""
    config = override_config(load_config(path), overrides, prog=f"jaxformer train {path}")
    if config.training.cpu_devices is not None:
        from jaxformer.training.parallel import split_cpu

        split_cpu(config.training.cpu_devices)
    from jaxformer import runs

    def print_start(task: runs.Task) -> None:
        print(config_to_toml(task.config))
        for line in task.report:
            print(line)
        print(f"layers run as a {task.execution.name}: {task.execution.reason}")

    result = runs.train_run(config, on_start=print_start)
    assert config.out is not None  # load_config fills it in
    folder = pathlib.Path(config.out)
    if result.stop_signal is not None:
        print(
            f"stopped by {result.stop_signal.name} at step {result.step}, saved in {folder}; the "
            "same command goes on from there"
        )
        sys.exit(128 + result.stop_signal)
    _report(runs.open_run(folder))


def _report(run: "Run") -> None:
    """Reports on a finished training run: validation loss, loss curve, samples, run folder."""
    import jax

    print()
    _print_evaluation(run)
    print(f"loss curve: {_draw_loss_curve(run)}\n")
    rng = jax.random.key(run.config.seed)
    with (run.folder / "samples.txt").open("w", encoding="utf-8") as file:
        for index, prompt in enumerate(run.config.samples.prompts):
            sample = run.sample(prompt, jax.random.fold_in(rng, index))
            sample = f"--- {prompt!r}\n{sample}\n"
            print(sample)
            file.write(sample + "\n")
    print(f"run folder: {run.folder}")


def _print_evaluation(run: "Run", data: Sequence[pathlib.Path] = ()) -> None:
    result = run.evaluate(data or None)
    loss = "loss" if data else "validation loss"
    print(f"{loss} at step {run.step}: {result}, over {result.predicted:,} {result.unit}s")
    for line in result.details:
        print(line)


def _draw_loss_curve(run: "Run") -> str:
    from jaxformer.training import read_metrics
    from jaxformer.viz import loss_curves

    folder, labels = run.folder, run.task.loss_labels(run.config)
    records = {folder.name: read_metrics(folder)}
    try:
        figure = loss_curves(
            records, unit=labels.unit, training_label=labels.training, title=folder.name
        )
    except ImportError:
        return 'not drawn, because matplotlib is missing; pip install "jaxformer[viz]"'
    path = folder / "loss.png"
    figure.savefig(path)
    return str(path)


def evaluate(command: Evaluate) -> None:
    """Prints the metrics of a run on its validation data, or on other data."""
    from jaxformer import runs

    _print_evaluation(runs.open_run(command.run, command.step), command.data)
