"""The command line: train, generate, evaluate. Heavy imports wait until a command runs."""

import dataclasses
import os
import pathlib
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import tyro

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

    Any key of the config can be overridden: jaxformer train CONFIG --optimizer.learning-rate 3e-4.
    jaxformer train CONFIG --help lists them all, with the config's values.
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
            standard error; 128 + the signal's number where a signal ended training.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if len(words) >= 2 and words[0] == "train" and not words[1].startswith("-"):
            _train(words[1], words[2:])
            return
        command = tyro.cli(
            Command,
            args=words,
            prog="jaxformer",
            description="The Transformer as a JAX library: train, generate, evaluate.",
        )
        if isinstance(command, Generate):
            _generate(command)
        elif isinstance(command, Evaluate):
            _evaluate(command)
    except BrokenPipeError:
        # Whoever read our output has gone, such as `head`; Python would complain at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except (ValueError, OSError) as error:
        if not _is_users_mistake(error):
            raise
        print(f"jaxformer: error: {error}", file=sys.stderr)
        sys.exit(2)


def _is_users_mistake(error: Exception) -> bool:
    from jaxformer import errors

    ours = tuple(getattr(errors, name) for name in errors.__all__)
    return isinstance(error, (*ours, FileNotFoundError, PermissionError, NotADirectoryError))


def _train(path: str, overrides: Sequence[str]) -> None:
    config = tyro.cli(
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
    """Ends a training run: loss curve, samples, held-out loss, folder."""
    samples = run.config.samples
    lines = []
    for index, prompt in enumerate(samples.prompts):
        continuation = "".join(_continue(run, prompt, samples, samples.max_new_tokens, seed=index))
        lines.append(f"--- {prompt!r}\n{prompt}{continuation}\n")
    text = "\n".join(lines)
    (run.folder / "samples.txt").write_text(text, encoding="utf-8")
    print(f"\n{text}")
    print(f"held-out loss at step {run.step}: {run.evaluate()}")
    print(f"loss curve: {_draw_loss_curve(run.folder)}")
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


def _continue(
    run: "Run", prompt: str, sampling: SamplingConfig, max_new_tokens: int | None, seed: int
) -> Iterator[str]:
    """Yields the continuation of a prompt piece by piece."""
    import jax

    from jaxformer.inference import generate_stream

    ids = run.tokenizer.encode(prompt).tolist()
    if not ids and run.tokenizer.end_of_text is not None:
        ids = [run.tokenizer.end_of_text]  # an empty prompt is the start of a document
    room = run.config.model.max_len - len(ids)
    stop = run.tokenizer.end_of_text
    decoder = run.tokenizer.stream()
    for (new,) in generate_stream(
        run.config.model,
        run.params,
        [ids],
        max_new_tokens=max(1, room) if max_new_tokens is None else max_new_tokens,
        rng=jax.random.key(seed),
        sampling=sampling,
        stop_tokens=() if stop is None else (stop,),
    ):
        yield decoder.push(new)
    yield decoder.flush()


def _generate(command: Generate) -> None:
    from jaxformer import runs

    run = runs.open_run(command.run, command.step)
    pieces = _continue(run, command.prompt, command.sampling, command.max_new_tokens, command.seed)
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
