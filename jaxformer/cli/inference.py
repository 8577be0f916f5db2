"""jaxformer generate, translate and predict."""

import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from jaxformer import errors
from jaxformer.cli.commands import Generate, Predict, Translate
from jaxformer.cli.opening import open_for
from jaxformer.cli.terminal import show
from jaxformer.config import BeamSearchConfig, SamplingConfig, SearchOptions

if TYPE_CHECKING:
    from jaxformer.runs import Run, Translation

__all__ = ["generate", "predict", "translate"]

_MAX_SHOWN_MISTAKES = 10  # unusable input lines that are named
_MAX_INPUT = 2**28  # bytes; a few million sentences
_CHUNK = 64  # lines per update of the progress bar


def generate(command: Generate) -> None:
    """Prints a prompt, then streams its continuation or the answer to it."""
    from jaxformer import text

    run = open_for(command, "chat" if command.chat else "generate")
    longest, seed, sampling = command.max_new_tokens, command.seed, command.sampling
    prompt = command.prompt
    if prompt is None:
        prompt = next(iter(run.config.samples.prompts), "")
    if command.chat:
        message = text.Message(role="user", content=prompt)
        pieces = run.chat_stream([message], max_new_tokens=longest, seed=seed, **sampling)
    else:
        pieces = run.generate_stream(prompt, max_new_tokens=longest, seed=seed, **sampling)
    first = next(pieces)  # raises for a mistake, before the prompt is printed
    behind = "\n" if command.chat else run.task.behind_prompt
    show(prompt + behind + first, end="", at_once=True)
    for piece in pieces:
        show(piece, end="", at_once=True)
    show()


def translate(command: Translate) -> None:
    """Prints the translations of a sentence, or of every line of input."""
    run = open_for(command, "translate")
    if command.temperature == 0:
        if command.seed != 0:
            raise errors.ConfigError(
                f"--seed={command.seed} only affects sampling; give a --temperature, or remove it"
            )
        _translate_by_search(run, command)
        return
    if command.search:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in command.search)
        raise errors.ConfigError(
            f"--temperature={command.temperature:g} samples instead of using beam search; remove "
            f"{flags}, or the temperature"
        )
    _translate_by_draws(run, command)


def _translate_by_search(run: "Run", command: Translate) -> None:
    from jaxformer.runs.options import with_options

    search: SearchOptions = {"num_best": 1, **command.search}
    with_options(BeamSearchConfig, run.config.translation, search)  # checks before reading lines
    lines = _Lines(command.text, command.file, "translated", run.encode)
    results = run.translate_stream(lines.good, **search)
    unfinished = 0

    def format_best(translations: "list[Translation]") -> str:
        nonlocal unfinished
        unfinished += not translations[0].finished
        if search["num_best"] == 1:
            return _on_one_line(translations[0].text)
        return "".join(f"{one.score:.4f}\t{_on_one_line(one.text)}\n" for one in translations)

    lines.print_in_order((index, format_best(best)) for index, best in results)
    if unfinished:
        show(
            f"jaxformer: {unfinished:,} of {len(lines.good):,} translations did not end "
            f"within {getattr(run.task, 'max_new_tokens', run.config.model.max_len)} tokens",
            error=True,
        )


def _translate_by_draws(run: "Run", command: Translate) -> None:
    from jaxformer.runs.options import with_options

    temperature = command.temperature
    with_options(SamplingConfig, run.config.samples, {"temperature": temperature})  # as above
    lines = _Lines(command.text, command.file, "translated", run.encode)
    drawn = run.sample_translations_stream(lines.good, seed=command.seed, temperature=temperature)
    lines.print_in_order((index, _on_one_line(one)) for index, one in drawn)


def predict(command: Predict) -> None:
    """Prints the predictions for a text, or for every line of input."""
    run = open_for(command, "fill_masks", "classify")
    if command.num_best < 1:
        raise errors.ConfigError(f"--num-best must be positive, got {command.num_best}")
    task: Any = run.task  # if it gives scores, it also has their names
    gives_scores = getattr(task, "gives_scores", False)
    lines = _Lines(command.text, command.file, "predicted for", run.task.check_prompt)

    def predictions(texts: list[str]) -> list[str]:
        if gives_scores:
            scores = [zip(row, task.classes, strict=True) for row in run.score(texts)]
            return ["".join(f"{score:.4f}\t{name}\n" for score, name in row) for row in scores]
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

    Unusable lines are named on standard error; `good` has the others.

    Args:
        text: text argument; it is an error if it cannot be used.
        file: file to read lines from if there is no text; default: standard input.
        done: participle for messages, such as "translated".
        check: raises DataError for a text that cannot be used.
    """

    def __init__(
        self, text: str | None, file: pathlib.Path | None, done: str, check: Callable[[str], Any]
    ) -> None:
        if text is not None and file is not None:
            raise errors.ConfigError("give a text or --file, not both")
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
                bad.append(f"line {index + 1} was not {done}: {error}")
            else:
                self.good.append(line)
                self._places.append(index)
        for message in bad[:_MAX_SHOWN_MISTAKES]:
            show(f"jaxformer: {message}", error=True)
        if bad:
            hidden = len(bad) - _MAX_SHOWN_MISTAKES
            more = f" ({hidden} not shown above)" if hidden > 0 else ""
            show(
                f"jaxformer: {len(bad):,} of {self._count:,} lines were not {done}{more}",
                error=True,
            )

    def print_in_order(self, results: Iterable[tuple[int, str]]) -> None:
        """Prints the result of each line in input order; an empty line if there is none."""
        blocks = [""] * self._count
        for index, block in self._with_progress(results):
            blocks[self._places[index]] = block
        for block in blocks:
            show(block)

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
        lines, size = [], 0
        for line in read_lines(file):
            lines.append(line)
            size += len(line)
            _require_input_size(size, str(file))
        return lines
    data = sys.stdin.buffer.read(_MAX_INPUT + 1)
    _require_input_size(len(data), "standard input")
    try:
        text = data.decode()  # UTF-8 in every locale, as for files
    except UnicodeDecodeError as error:
        raise errors.DataError(f"standard input must be UTF-8: {error}") from None
    lines = text.removeprefix("\ufeff").split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _require_input_size(size: int, name: str) -> None:
    if size > _MAX_INPUT:
        raise errors.DataError(
            f"input must be at most {_MAX_INPUT:,} bytes, got more from {name}; split it into parts"
        )


def _on_one_line(text: str) -> str:
    """Escapes line breaks, which a model may generate, so that a result stays one line."""
    return text.replace("\n", "\\n").replace("\r", "\\r")
