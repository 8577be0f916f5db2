"""jaxformer train and evaluate."""

import dataclasses
import pathlib
import shlex
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxformer.cli.commands import Evaluate, Train
from jaxformer.cli.figures import cannot_draw, write_figure
from jaxformer.cli.hosts import LAUNCH_FLAGS, several_hosts
from jaxformer.cli.opening import open_for
from jaxformer.cli.overrides import (
    config_path,
    implied_settings,
    load_with_start,
    override_config,
    split_cpu_for,
)
from jaxformer.cli.parsing import pop_flags
from jaxformer.cli.terminal import flush, for_terminal, lasting_output, show, width
from jaxformer.config import ExperimentConfig, changed_settings
from jaxformer.errors import ConfigError, DataError, StorageError
from jaxformer.stopping import saved_note, say_stopped
from jaxformer.storage import write_whole

if TYPE_CHECKING:
    from jaxformer.runs import Run, Task
    from jaxformer.training import FitResult

__all__ = ["changed_paragraphs", "evaluate", "print_start", "train"]


def train(words: Sequence[str]) -> None:
    """Trains or resumes the run of a config with its overrides, and reports the result.

    On several hosts, all call this, and the first one reports. Training continues even if standard
    output is closed.

    Args:
        words: config, its flags, flags for a launch on several hosts, and `--base`.
    """
    with lasting_output():
        path, overrides = config_path(Train, words, prog="jaxformer train")
        launch, overrides = pop_flags(overrides, LAUNCH_FLAGS)
        own, overrides = pop_flags(overrides, {"--base": pathlib.Path})
        loaded = load_with_start(path, overrides)
        prog = f"jaxformer train {shlex.quote(path)}"
        config = override_config(loaded, overrides, prog=prog, launches=True)
        implied = implied_settings(loaded, config, overrides)
        _train(config, launch, implied, own.get("base"))


def _train(
    config: ExperimentConfig,
    launch: dict[str, Any],
    implied: Sequence[str],
    base: pathlib.Path | None,
) -> None:
    split_cpu_for(config)
    assert config.out is not None  # load_config fills it in
    folder = pathlib.Path(config.out)
    with several_hosts(launch, folder) as is_first:
        for line in implied if is_first else ():
            show(line)
        from jaxformer import runs

        on_start = print_start if is_first else None
        result = runs.train_run(config, on_start=on_start, base=base)
        if result.stop_signal is not None:
            flush()  # so that this line is the last one
            say_stopped(result.stop_signal, for_terminal(saved_note(result.step, folder)))
            sys.exit(128 + result.stop_signal)
        result = result._replace(params=None)  # makes room for those of the best step
        if is_first:
            _report(folder, result, base)


def print_start(task: "Task") -> None:
    """Prints the task, its data, and the settings that differ from their defaults."""
    config = task.config
    show(f"{task.kind}; settings other than the defaults (all are in {config.out}/config.toml):")
    for paragraph in changed_paragraphs(config):
        show(paragraph)
    for line in (*task.report, f"layers run as a {task.execution.name}: {task.execution.reason}"):
        show(line)


def changed_paragraphs(config: ExperimentConfig) -> list[str]:
    """The non-default settings of each table, wrapped to the terminal width."""
    tables: dict[str, list[str]] = {}
    settings = changed_settings(dataclasses.replace(config, out=None))  # messages name `out` anyway
    for key, value in settings.items():
        table, dot, name = key.partition(".") if "." in key else ("", "", key)
        setting = f"{name} = {value}".replace(" ", "\0")  # no line break inside a setting
        tables.setdefault(f"[{table}] " if dot else "", []).append(setting)
    return [
        textwrap.fill(
            table + ", ".join(of_table), width(), initial_indent="  ", subsequent_indent="    ",
            break_long_words=False, break_on_hyphens=False,
        ).replace("\0", " ")
        for table, of_table in tables.items()
    ]  # fmt: skip


def _report(folder: pathlib.Path, result: "FitResult", base: pathlib.Path | None) -> None:
    """Reports on a finished training run: its best checkpoint, loss curve, samples, run folder."""
    import jax

    from jaxformer import runs

    show()
    try:
        run = runs.open_run(folder, base=base)
    except ConfigError as error:  # it does not fit on the devices of one host
        show(f"no samples and no loss curve, because {error}")
        show(f"run folder: {folder}")
        return
    if result.evaluation is None or run.step != result.step:
        show(f"the best checkpoint is from step {run.step} of {result.step}")
        _print_evaluation(run)
    elif hasattr(run.task, "translate"):  # by beam search, which training does not use
        found = run.evaluate()
        scores = ", ".join(f"{name} {value:.4g}" for name, value in found.scores.items())
        show("\n".join([f"translations at step {run.step}: {scores}", *found.details]))
    show(f"loss curve: {_draw_loss_curve(run)}\n")
    rng, samples = jax.random.key(run.config.seed), []
    for index, prompt in enumerate(run.config.samples.prompts):
        sample = run.sample(prompt, jax.random.fold_in(rng, index))
        samples.append(f"--- {prompt!r}\n{sample}\n\n")
        show(samples[-1], end="")
    try:
        write_whole(run.folder / "samples.txt", "".join(samples))
    except StorageError as error:
        raise StorageError(f"{error}; the run is trained, its checkpoints are complete") from None
    show(f"run folder: {run.folder}")


def _print_evaluation(run: "Run", data: Sequence[pathlib.Path] = ()) -> None:
    result = run.evaluate(data or None)
    loss = "loss" if data else "validation loss"
    where = "" if run.step is None else f" at step {run.step}"
    show(f"{loss}{where}: {result}, over {result.predicted:,} {result.unit}s")
    for line in result.details:
        show(line)


def _draw_loss_curve(run: "Run") -> str:
    """Draws the loss curve; returns the path of the file, or the reason why there is none."""
    from jaxformer.training import read_metrics

    folder, labels = run.folder, run.task.loss_labels(run.config)
    path = folder / "loss.png"
    try:
        from jaxformer.viz import loss_curves

        figure = loss_curves(
            {folder.name: read_metrics(folder)},
            unit=labels.unit,
            training_label=labels.training,
            title=f"Loss of {folder.name}",
        )
        write_figure(figure, path)
    except ImportError:
        return 'not drawn, because matplotlib is not installed; pip install "jaxformer[viz]"'
    except (DataError, StorageError) as error:
        return f"not drawn: {error}"
    # The run is trained, whatever is wrong with the fonts or settings of matplotlib.
    except Exception as error:
        return f"not drawn, {cannot_draw(error)}"
    return str(path)


def evaluate(command: Evaluate) -> None:
    """Prints the metrics of a run on its validation data, or on other data."""
    _print_evaluation(open_for(command), command.data)
