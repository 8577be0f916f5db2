"""jaxformer train and prepare."""

import dataclasses
import logging
import pathlib
import re
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from jaxformer.cli.commands.figures import draw, loss_figure
from jaxformer.cli.commands.runs import print_evaluation
from jaxformer.cli.experiment import ConfigFlags, read_config, start_jax
from jaxformer.cli.terminal import show
from jaxformer.config import ExperimentConfig, changed_settings
from jaxformer.config.training import Launch
from jaxformer.errors import ConfigError
from jaxformer.storage import as_path, write_whole

if TYPE_CHECKING:
    from jaxformer.runs import Task
    from jaxformer.training import FitResult


def train(
    config: str,
    *,
    flags: ConfigFlags,
    launch: Launch,
    base: pathlib.Path | None = None,
    profile: str | None = None,
) -> None:
    """Train a model from a config, or resume a run.

    Args:
        config: config file, name of a built-in config, or run folder, such as runs/quickstart.
        base: for a LoRA run: current path of its base model, if it has moved.
        profile: steps to trace, such as 20:25 (20 to 24); see jaxformer plot profile.
    """
    steps = None if profile is None else profiled_steps(profile)
    experiment = read_config(config, flags)
    assert experiment.out is not None  # read_config fills it in
    folder = as_path(experiment.out)
    start_jax(experiment, launch)
    from jaxformer import runs
    from jaxformer.training.parallel import in_first_process, is_first_process

    is_first = launch.coordinator is None or is_first_process()
    if not is_first:
        logging.getLogger("jaxformer").setLevel(logging.CRITICAL)
    on_start = print_start if is_first else None
    result = runs.train_run(experiment, on_start=on_start, base=base, profile=steps)
    if result.stop_signal is not None:
        exit_stopped(result.stop_signal, result.step, folder)
    result = result._replace(params=None)  # makes room for those of the best step
    # The others wait: JAX would end processes of which one leaves long before another.
    in_first_process("report on the run", lambda: _report(folder, result, base))


def exit_stopped(number: signal.Signals, step: int, folder: pathlib.Path) -> NoReturn:
    """Says what is saved of a training that a signal has stopped, and exits."""
    sys.stdout.flush()  # so that this line is the last one
    saved = f"at step {step}, saved in {folder}; repeat the command to resume"
    note = saved if step else "before the first step; repeat the command to start again"
    show(f"jaxformer: stopped by {number.name} {note}", error=True)
    sys.exit(128 + number)


def profiled_steps(text: str) -> range:
    """Parses --profile 20:25, which is steps 20 to 24; raises ConfigError."""
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None:
        raise ConfigError(
            f"--profile must be steps FIRST:END, such as 20:25 for steps 20 to 24, got {text!r}"
        )
    return range(int(match[1]), int(match[2]))


def print_start(task: "Task") -> None:
    """Prints the kind of model, and the settings that differ from their defaults."""
    config, model = task.config, task.model
    show(f"{model.kind}; settings other than the defaults (all are in {config.out}/config.toml):")
    show_changed(config)


def show_changed(config: ExperimentConfig) -> None:
    """Prints the non-default settings, one line for each table."""
    tables: dict[str, list[str]] = {}
    config = dataclasses.replace(config, out=None)  # messages name `out` anyway
    for key, value in changed_settings(config).items():
        table, dot, name = key.rpartition(".")
        tables.setdefault(f"[{table}] " if dot else "", []).append(f"{name} = {value}")
    for table, settings in tables.items():
        show(f"  {table}{', '.join(settings)}")


def _report(folder: pathlib.Path, result: "FitResult", base: pathlib.Path | None) -> None:
    """Reports on a finished training run: its best checkpoint, loss curve, samples, run folder."""
    import jax

    from jaxformer import runs

    show()
    try:
        model = runs.open_run(folder, base=base)
    except (ConfigError, jax.errors.JaxRuntimeError) as error:  # too large for one host
        show(f"no samples and no loss curve, because {error}")
        show(f"run folder: {folder}")
        return
    if result.evaluation is None or model.step != result.step:
        show(f"the best checkpoint is from step {model.step} of {result.step}")
        print_evaluation(model)
    elif isinstance(model, runs.Translator):  # by beam search, unlike training
        evaluation = model.evaluate()
        scores = ", ".join(f"{name} {value:.4g}" for name, value in evaluation.scores.items())
        show("\n".join([f"translations at step {model.step}: {scores}", *evaluation.details]))
    draw("loss curve", lambda: loss_figure([folder]), folder / "loss.png")
    show()
    samples = []
    for index, prompt in enumerate(model.config.samples.prompts):
        sample = model.sample(prompt, (model.config.seed + index) % 2**31)
        samples.append(f"--- {prompt!r}\n{sample}\n\n")
        show(samples[-1], end="")
    write_whole(folder / "samples.txt", "".join(samples))
    show(f"run folder: {folder}")


def prepare(config: str, *, flags: ConfigFlags) -> None:
    """Read, split and tokenize the data of a config.

    jaxformer train also does this before its first step. Tokens are written to files in data.cache;
    memory use stays bounded. If you stop the command and start it again, it continues where it
    stopped. Flags override keys of the config, for example:

    jaxformer prepare CONFIG --data.paths "corpus/*.jsonl.gz" --data.cache /data/tokens

    Args:
        config: config file, name of a built-in config, or run folder, such as runs/quickstart.
    """
    experiment = read_config(config, flags)
    from jaxformer import runs
    from jaxformer.runs.data.prepare import cache_dir

    task = runs.prepare_task(experiment)
    summary = task.summary
    show(
        f"{summary.train_tokens:,} tokens for training, {summary.validation_tokens:,} for "
        f"validation; {task.config.model.vocab_size:,} in the vocabulary"
    )
    if (folder := cache_dir(experiment.data)) is not None:
        show(f"prepared in {folder / 'corpora'}")
