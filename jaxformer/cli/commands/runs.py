"""jaxformer configs, evaluate, convert and verify."""

import pathlib
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from jaxformer.cli.inputs import ModelSource, Opening
from jaxformer.cli.terminal import show, wrapped
from jaxformer.config import ready_configs
from jaxformer.config.checks import PositiveInt
from jaxformer.config.files import ready_hint
from jaxformer.errors import ConfigError

if TYPE_CHECKING:
    from jaxformer.runs import TextModel


def configs(name: str | None = None) -> None:
    """List the built-in configs, or print one to save and change.

    Args:
        name: config to print, such as quickstart; all are listed if not set.
    """
    texts = {key: path.read_text(encoding="utf-8") for key, path in ready_configs().items()}
    if name is not None:
        if name not in texts:
            raise ConfigError(f"there is no built-in config {name!r}{ready_hint(name)}")
        show(texts[name], end="")
        return
    indent = max(map(len, texts)) + 2
    for ready, text in texts.items():
        line = f"{ready:<{indent}}{_purpose(text)}"
        show(wrapped(line, indent=" " * indent))


def _purpose(text: str) -> str:
    """First sentence of the comment at the top of a config, and its training time."""
    head = re.sub(r"\n# ?", " ", text.partition("\n\n")[0].removeprefix("# "))
    sentence = re.split(r"(?<=\.)\s", head)[0]
    time = re.search(r"Time:\s+(.*?)[.;](?:\s|$)", head)
    return f"{sentence} Time: {time[1]}." if time else sentence


def evaluate(
    run: pathlib.Path,
    *,
    data: tuple[pathlib.Path, ...] = (),
    tasks: tuple[str, ...] = (),
    include: pathlib.Path | None = None,
    limit: PositiveInt | None = None,
    opening: Opening,
) -> None:
    """Measure a run on validation data, other data, or standard tasks.

    Prints the loss. For a translator, also prints BLEU and chrF (install jaxformer[eval]) and the
    share of exact translations; for a classifier, the accuracy.

    Args:
        run: run folder, such as runs/quickstart, or Hugging Face folder.
        data: files to measure on, in the format of the training data: text files; TSV files of
            pairs, or an aligned file per language; TSV files of text and label. The validation data
            if not set.
        tasks: names of tasks of lm-evaluation-harness, such as lambada_openai piqa (install
            jaxformer[harness]).
        include: folder with tasks of your own, as YAML files of lm-evaluation-harness.
        limit: largest number of examples of each task.
    """
    if not tasks:
        for name, value in (("include", include), ("limit", limit)):
            if value is not None:
                raise ConfigError(f"--{name} is for --tasks, got {value} without it; name tasks")
        return print_evaluation(opening.open(run), data)
    if data:
        raise ConfigError(f"--tasks have data of their own, got --data {data[0]}; omit one of both")
    from jaxformer import runs

    model = opening.open(run).require(runs.LanguageModel)
    show(runs.evaluate_tasks(model, tasks, include=include, limit=limit))


def print_evaluation(model: "TextModel", data: Sequence[pathlib.Path] = ()) -> None:
    """Prints the metrics of a model on its run's validation data, or on other data."""
    result = model.evaluate(data or None)
    loss = "loss" if data else "validation loss"
    where = "" if model.step is None else f" at step {model.step}"
    show(f"{loss}{where}: {result}, over {result.predicted:,} {result.unit}s")
    for line in result.details:
        show(line)


def convert(
    source: pathlib.Path,
    target: pathlib.Path,
    *,
    model_type: str | None = None,
    dtype: Literal["float32", "bfloat16"] | None = None,
    ignore: tuple[str, ...] = (),
    adapter: bool = False,
    push: str | None = None,
    weights: ModelSource,
) -> None:
    """Convert a run to a Hugging Face folder, or back.

    If a Hugging Face model type can represent the model, transformers can load the folder, and so
    can other programs that read its format. If the target ends in .safetensors, only the parameters
    are written, under jaxformer's own paths, with the model's config in a TOML file next to them.

    Args:
        source: run folder, Hugging Face folder, or id of a model at Hugging Face, OWNER/MODEL.
        target: folder to create, or file that ends in .safetensors.
        model_type: Hugging Face model type to write, such as llama; if not set, the one it was
            loaded from, or else the first that can represent it.
        dtype: dtype of the written parameters; unchanged if not set.
        ignore: for a Hugging Face folder: generation settings that you know to be irrelevant.
        adapter: write only the matrices of a LoRA run, as an adapter that PEFT loads.
        push: id OWNER/MODEL as which the folder of a run is uploaded to Hugging Face, with a model
            card; a new repository is public.
    """
    from jaxformer import runs

    line = runs.convert(
        source, target, model_type=model_type, dtype=dtype, ignore=ignore, adapter=adapter,
        push=push, **vars(weights),
    )  # fmt: skip
    show(line)


def verify(run: pathlib.Path) -> None:
    """Verify by SHA-256 that no file of a run has changed.

    Prints one line for the run folder and one for each checkpoint: "good", or what is damaged. The
    exit status is 1 if anything is damaged, else 0. Metrics, samples and figures are not checked.

    Args:
        run: run folder, such as runs/quickstart.
    """
    from jaxformer import runs

    parts = runs.verify_run(run)
    for name, damage in parts.items():
        state = "good" if damage is None else f"damaged: {' '.join(damage.split())}"
        show(f"{name}: {state}")
    if any(parts.values()):
        sys.exit(1)
