"""jaxformer generate, translate and predict."""

import dataclasses
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from jaxformer import errors
from jaxformer.cli.commands import Generate, Predict, Translate
from jaxformer.config import SamplingConfig

if TYPE_CHECKING:
    from jaxformer.runs import Run

__all__ = ["generate", "predict", "translate"]

_MAX_SHOWN_MISTAKES = 10  # lines of input that cannot be used and are named
_CHUNK = 64  # lines between two moves of the progress bar


def generate(command: Generate) -> None:
    """Prints a prompt, and streams its continuation."""
    import jax

    run = _open(command, "generate")
    pieces = run.generate(
        command.prompt,
        rng=jax.random.key(_checked_seed(command.seed)),
        sampling=command.sampling,
        max_new_tokens=command.max_new_tokens,
    )
    first = next(pieces)  # raises for a mistake before the prompt is printed
    print(command.prompt + first, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


def translate(command: Translate) -> None:
    """Prints the translations of a sentence, or of every line of input."""
    import jax

    run = _open(command, "translate")
    if command.temperature == 0:
        if command.seed != 0:
            raise errors.ConfigError(
                f"--seed={command.seed} is of draws; give a --temperature, or leave it out"
            )
        given: dict[str, Any] = {
            "beam_size": command.beam_size,
            "length_penalty": command.length_penalty,
            "num_best": command.num_best,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        search = dataclasses.replace(run.config.translation, **chosen)
        lines = _Lines(command.text, command.file, "translated", run.encode)
        results = run.translate_stream(lines.good, search=search)
        unfinished = 0

        def format_best(translations: list[Any]) -> str:
            nonlocal unfinished
            unfinished += not translations[0].finished
            if command.num_best == 1:
                return _on_one_line(translations[0].text)
            return "".join(f"{one.score:.4f}\t{_on_one_line(one.text)}\n" for one in translations)

        lines.print_in_order((index, format_best(best)) for index, best in results)
        if unfinished:
            print(
                f"jaxformer: {unfinished:,} of {len(lines.good):,} translations did not come to "
                f"an end within max_len={run.config.model.max_len} tokens",
                file=sys.stderr,
            )
        return
    if command.num_best != 1 or command.beam_size is not None or command.length_penalty is not None:
        raise errors.ConfigError(
            f"--temperature={command.temperature:g} draws one translation; leave out --num-best, "
            "--beam-size and --length-penalty, or the temperature"
        )
    sampling = SamplingConfig(temperature=command.temperature)
    lines = _Lines(command.text, command.file, "translated", run.encode)
    rng = jax.random.key(_checked_seed(command.seed))

    def samples() -> Iterator[tuple[int, str]]:
        for start in range(0, len(lines.good), _CHUNK):
            chunk, chunk_rng = lines.good[start : start + _CHUNK], jax.random.fold_in(rng, start)
            texts = run.sample_translations(chunk, rng=chunk_rng, sampling=sampling)
            yield from enumerate(map(_on_one_line, texts), start)

    lines.print_in_order(samples())


def predict(command: Predict) -> None:
    """Prints the predictions for a text, or for every line of input."""
    run = _open(command, "fill_masks", "classify")
    if command.num_best < 1:
        raise errors.ConfigError(f"--num-best must be positive, got {command.num_best}")
    lines = _Lines(command.text, command.file, "predicted for", run.task.check_prompt)

    def predictions(texts: list[str]) -> list[str]:
        if hasattr(run.task, "classify"):
            labels = run.classify(texts, command.num_best)
            return ["".join(f"{c.probability:.4f}\t{c.name}\n" for c in best) for best in labels]
        return [
            "".join(
                f"{number}\t{fill.probability:.4f}\t{_on_one_line(fill.text)}\n"
                for number, best in enumerate(masks, 1)
                for fill in best
            )
            for masks in run.fill_masks(texts, command.num_best)
        ]

    starts = range(0, len(lines.good), _CHUNK)
    lines.print_in_order(
        (index, block)
        for start in starts
        for index, block in enumerate(predictions(lines.good[start : start + _CHUNK]), start)
    )


class _Lines:
    """Input of a command: one text, or the lines of a file or of standard input.

    Lines that cannot be used are named on standard error; `good` are the others.

    Args:
        text: text argument; if it cannot be used, that is an error.
        file: file whose lines are read where there is no text; standard input when not given.
        done: participle for messages, such as "translated".
        check: raises DataError for a text that cannot be used.
    """

    def __init__(
        self, text: str | None, file: pathlib.Path | None, done: str, check: Callable[[str], Any]
    ) -> None:
        if text is not None and file is not None:
            raise errors.ConfigError("give a text or --file, got both")
        self.good: list[str] = []
        self._places: list[int] = []
        self._from_file = text is None
        lines = [text] if text is not None else _read_lines(file)
        self._count = len(lines)
        bad = []
        for index, line in enumerate(lines):
            try:
                check(line)
            except errors.DataError as error:
                if text is not None:
                    raise
                bad.append(f"line {index + 1} is not {done}: {error}")
            else:
                self.good.append(line)
                self._places.append(index)
        for message in bad[:_MAX_SHOWN_MISTAKES]:
            print(f"jaxformer: {message}", file=sys.stderr)
        if bad:
            hidden = len(bad) - _MAX_SHOWN_MISTAKES
            more = f" ({hidden} more than those above)" if hidden > 0 else ""
            print(
                f"jaxformer: {len(bad):,} of {self._count:,} lines are not {done}{more}",
                file=sys.stderr,
            )

    def print_in_order(self, results: Iterable[tuple[int, str]]) -> None:
        """Prints the result of each line in the order of the input; an empty line without one."""
        blocks = [""] * self._count
        for index, block in self._with_progress(results):
            blocks[self._places[index]] = block
        for block in blocks:
            print(block)

    def _with_progress(self, results: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        from rich.console import Console
        from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (TextColumn("lines"), MofNCompleteColumn(), TimeRemainingColumn())
        hidden = not self._from_file or not console.is_terminal
        with Progress(*columns, console=console, disable=hidden, transient=True) as progress:
            yield from progress.track(results, total=len(self.good))


def _read_lines(file: pathlib.Path | None) -> list[str]:
    from jaxformer.text import read_lines

    if file is not None:
        return list(read_lines(file))
    try:
        text = sys.stdin.buffer.read().decode()  # UTF-8 in every locale, as for a file
    except UnicodeDecodeError as error:
        raise errors.DataError(f"standard input must be UTF-8: {error}") from None
    lines = text.removeprefix("\ufeff").split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _on_one_line(text: str) -> str:
    """Escapes line breaks, which a model may generate, so that a result stays one line."""
    return text.replace("\n", "\\n").replace("\r", "\\r")


def _checked_seed(seed: int) -> int:
    if not 0 <= seed < 2**31:
        raise errors.ConfigError(f"--seed must be in 0 .. 2**31 - 1, got {seed}")
    return seed


def _open(command: Generate | Translate | Predict, *abilities: str) -> "Run":
    """Opens the run of a command, whose task must have one of these methods."""
    from jaxformer import runs

    run = runs.open_run(command.run, command.step)
    run.require(*abilities)
    return run
