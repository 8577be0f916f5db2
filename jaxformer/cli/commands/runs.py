"""jaxformer configs, evaluate, convert and verify."""

import dataclasses
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from jaxformer.cli.inputs import ModelSource, Opening, open_for, values_of
from jaxformer.cli.parsing import option
from jaxformer.cli.terminal import show, width, wrapped
from jaxformer.config import ready_configs
from jaxformer.config.files import ready_hint
from jaxformer.errors import ConfigError

if TYPE_CHECKING:
    from jaxformer.runs import Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Configs:
    """List the built-in configs, or print one to save and change.

    Args:
        name: config to print, such as quickstart.
    """

    name: str | None = option(None, positional=True, metavar="[NAME]", shown="list all")


def configs(command: Configs) -> None:
    """Lists the built-in configs with their purpose, or prints the text of one."""
    texts = {name: path.read_text(encoding="utf-8") for name, path in ready_configs().items()}
    if command.name is not None:
        if command.name not in texts:
            raise ConfigError(
                f"there is no built-in config {command.name!r}{ready_hint(command.name)}"
            )
        show(texts[command.name], end="")
        return
    indent = max(map(len, texts)) + 2
    for name, text in texts.items():
        line = f"{name:<{indent}}{_purpose(text)}"
        show(wrapped(line, rest=" " * min(indent, width() // 2)))


def _purpose(text: str) -> str:
    """First sentence of the comment at the top of a config, and its training time."""
    head = re.sub(r"\n# ?", " ", text.partition("\n\n")[0].removeprefix("# "))
    sentence = re.split(r"(?<=\.)\s", head)[0]
    time = re.search(r"Time:\s+(.*?)[.;](?:\s|$)", head)
    return f"{sentence} Time: {time[1]}." if time else sentence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate(Opening):
    """Measure a trained run on its validation data, or on other data.

    Prints the loss. For a translator, also prints BLEU and chrF (install jaxformer[eval]) and the
    share of exact translations; for a classifier, the accuracy.

    Args:
        data: files to measure on, in the format of the training data: text files; TSV files of
            pairs, or an aligned file per language; TSV files of text and label.
    """

    data: tuple[pathlib.Path, ...] = option((), shown="the validation data")


def evaluate(command: Evaluate) -> None:
    """Prints the metrics of a run on its validation data, or on other data."""
    print_evaluation(open_for(command), command.data)


def print_evaluation(run: "Run", data: Sequence[pathlib.Path] = ()) -> None:
    """Prints the metrics of a run on its validation data, or on other data."""
    result = run.evaluate(data or None)
    loss = "loss" if data else "validation loss"
    where = "" if run.step is None else f" at step {run.step}"
    show(f"{loss}{where}: {result}, over {result.predicted:,} {result.unit}s")
    for line in result.details:
        show(line)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Convert(ModelSource):
    """Convert a run to a Hugging Face folder, or back.

    If a Hugging Face model type can represent the model, transformers can load the folder, and so
    can other programs that read its format. If the target ends in .safetensors, only the parameters
    are written, under jaxformer's own paths, with the model's config in a TOML file next to them.

    Args:
        source: run folder, Hugging Face folder, or id of a model at Hugging Face, OWNER/MODEL.
        target: folder to create, or file that ends in .safetensors.
        model_type: Hugging Face model type to write, such as llama.
        dtype: dtype of the written parameters.
        ignore: for a Hugging Face folder: fields of its JSON files that you know to be irrelevant.
        adapter: write only the matrices of a LoRA run, as an adapter that PEFT loads.
    """

    source: pathlib.Path = option(positional=True, metavar="SOURCE")
    target: pathlib.Path = option(positional=True, metavar="TARGET")
    model_type: str | None = option(
        None, shown="the one it was loaded from, else the first that can represent it"
    )
    dtype: Literal["float32", "bfloat16"] | None = option(None, shown="unchanged")
    ignore: tuple[str, ...] = option((), shown="none")
    adapter: bool = False


def convert(command: Convert) -> None:
    """Converts between a run and a Hugging Face folder, or writes a file of parameters."""
    from jaxformer import runs

    values = values_of(command, Convert)
    show(runs.convert(values.pop("source"), values.pop("target"), **values))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verify:
    """Verify by SHA-256 that no file of a run has changed.

    Prints one line for the run folder and one for each checkpoint: "good", or what is damaged. The
    exit status is 1 if anything is damaged, else 0. Metrics, samples and figures are not checked.

    Args:
        run: run folder, such as runs/quickstart.
    """

    run: pathlib.Path = option(positional=True, metavar="RUN")


def verify(command: Verify) -> None:
    """Prints a line for a run folder and each checkpoint; exit status 1 if one is damaged."""
    from jaxformer import runs

    parts = runs.verify_run(command.run)
    for part in parts:
        state = "good" if part.damage is None else f"damaged: {' '.join(part.damage.split())}"
        show(f"{part.name}: {state}")
    if any(part.damage is not None for part in parts):
        sys.exit(1)
