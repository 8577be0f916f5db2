"""The command line: train, generate, evaluate. Heavy imports wait until a command runs."""

import contextlib
import dataclasses
import io
import os
import pathlib
import re
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import tyro

from jaxformer import errors
from jaxformer.config import (
    ExperimentConfig,
    SamplingConfig,
    config_to_toml,
    load_config,
)

if TYPE_CHECKING:
    from jaxformer.runs import Run

__all__ = ["main"]


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a model as a TOML config says, or go on with its run.

    Any key of the config can be overridden behind its path: jaxformer train CONFIG
    --optimizer.learning-rate 3e-4. jaxformer train CONFIG --help lists them all, with the
    config's values.
    """

    config: tyro.conf.Positional[pathlib.Path]
    """Config file, such as configs/quickstart.toml."""


@dataclasses.dataclass(frozen=True)
class Generate:
    """Continue a prompt with a trained run; the text streams to standard output."""

    run: tyro.conf.Positional[pathlib.Path]
    """Run folder, such as runs/quickstart."""

    prompt: str
    """Text to continue."""

    max_new_tokens: int | None = None
    """Longest continuation in tokens; as many as fit the model's context when not given."""

    sampling: tyro.conf.OmitArgPrefixes[SamplingConfig] = dataclasses.field(
        default_factory=SamplingConfig
    )

    seed: int = 0
    """Of the draws."""

    step: int | None = None
    """Checkpoint to use; the one with the lowest held-out loss when not given."""


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Print the loss and perplexity of a trained run on its held-out text."""

    run: tyro.conf.Positional[pathlib.Path]
    """Run folder, such as runs/quickstart."""

    step: int | None = None
    """Checkpoint to use; the one with the lowest held-out loss when not given."""


Command = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Generate, tyro.conf.subcommand("generate")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line, and exits with its status.

    Args:
        arguments: words after the program's name; those of the process when not given.

    Raises:
        SystemExit: always but after a success; 2 for a user's mistake, which gets one line on
            standard error; 128 + the signal's number where a signal ended the program.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if len(words) >= 2 and words[0] == "train" and not words[1].startswith("-"):
            _train(words[1], words[2:])
            return
        command = _parse(
            Command,
            args=words,
            prog="jaxformer",
            description="The Transformer as a JAX library: train, generate, evaluate.",
        )
        if isinstance(command, Train):
            _train(str(command.config), [])
        elif isinstance(command, Generate):
            _generate(command)
        else:
            _evaluate(command)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        # Whoever read our output has gone, such as `head`; Python would complain at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except (ValueError, OSError) as error:
        _exit_for_mistake(error)


def _exit_for_mistake(error: Exception) -> NoReturn:
    """Exits with one line if an error is the user's, and raises it again if it is ours."""
    message = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: {error.strerror}"
    elif not isinstance(error, tuple(getattr(errors, name) for name in errors.__all__)):
        raise error
    print(f"jaxformer: error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


def _parse(kind: Any, **arguments: Any) -> Any:
    """Parses words with tyro; a mistake becomes one line instead of its box of several."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, **arguments)
    except SystemExit as stopped:
        if stopped.code:
            raise errors.ConfigError(_unboxed(said.getvalue())) from None
        raise


def _unboxed(box: str) -> str:
    """Takes the words of a message out of the frame that tyro draws around it."""
    lines = [re.sub(r"[\u2500-\u257f]+", " ", line) for line in box.splitlines()]
    return " ".join(" ".join(lines[1:] or lines).split())  # the first is the frame's title


def _train(path: str, overrides: Sequence[str]) -> None:
    config = _parse(
        ExperimentConfig,
        default=load_config(path),
        args=list(overrides),
        prog=f"jaxformer train {path}",
        description="Overrides of the config; each shows its value there.",
    )
    if config.training.cpu_devices is not None:
        from jaxformer.training.parallel import split_cpu

        split_cpu(config.training.cpu_devices)
    from jaxformer import runs

    result = runs.train_run(config, on_start=lambda resolved: print(config_to_toml(resolved)))
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
    """Ends a training run: held-out loss, loss curve, samples, folder."""
    import jax

    print(f"\nheld-out loss at step {run.step}: {run.evaluate()}")
    print(f"loss curve: {_draw_loss_curve(run.folder)}\n")
    samples, rng = run.config.samples, jax.random.key(run.config.seed)
    with (run.folder / "samples.txt").open("w", encoding="utf-8") as file:
        for index, prompt in enumerate(samples.prompts):
            pieces = run.generate(
                prompt,
                rng=jax.random.fold_in(rng, index),
                sampling=samples,
                max_new_tokens=samples.max_new_tokens,
            )
            sample = f"--- {prompt!r}\n{prompt}{''.join(pieces)}\n"
            print(sample)
            file.write(sample + "\n")
    print(f"run folder: {run.folder}")


def _draw_loss_curve(folder: pathlib.Path) -> str:
    from jaxformer.training import read_metrics
    from jaxformer.viz import loss_curve

    try:
        figure = loss_curve(read_metrics(folder), title=folder.name)
    except ImportError:
        return 'not drawn, because matplotlib is missing; pip install "jaxformer[viz]"'
    path = folder / "loss.png"
    figure.savefig(path)
    return str(path)


def _generate(command: Generate) -> None:
    import jax

    from jaxformer import runs

    run = runs.open_run(command.run, command.step)
    pieces = run.generate(
        command.prompt,
        rng=jax.random.key(command.seed),
        sampling=command.sampling,
        max_new_tokens=command.max_new_tokens,
    )
    first = next(pieces)  # any mistake shows before the prompt is echoed
    print(command.prompt + first, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


def _evaluate(command: Evaluate) -> None:
    from jaxformer import runs

    run = runs.open_run(command.run, command.step)
    result = run.evaluate()
    print(f"held-out loss at step {run.step}: {result}, over {result.tokens:,} tokens")
