"""jaxformer inspect."""

import pathlib
import re
import shlex
from typing import TYPE_CHECKING

from jaxformer.cli.commands.train import changed_paragraphs
from jaxformer.cli.experiment import read_config, start_jax
from jaxformer.cli.flags import ConfigFlags
from jaxformer.cli.terminal import for_terminal, show, show_named, width
from jaxformer.errors import ConfigError
from jaxformer.storage import as_path

if TYPE_CHECKING:
    from jaxformer.runs import BatchReport, DataReport, SharedTexts

_MARGIN = 2  # columns before bars and rows
_MOST_LINES = 8  # of the text of a row
_EXAMPLE = 60  # characters shown of a shared text
_ESCAPES = str.maketrans({"\n": "\\n", "\t": "\\t"})


def inspect(
    config: str, *, flags: ConfigFlags, step: int | None = None, rows: int | None = None
) -> None:
    """Show the data and a batch of a config, or the state of a run.

    For a config, this prepares the data as jaxformer train does for a new run. It shows lengths,
    texts that validation and training share, and decoded rows of a batch. It creates no model and
    no run folder. Flags override keys, as in jaxformer train.

    For a run folder, this shows its config, data and checkpoints, and what you can do next.

    Args:
        config: config file, name of a built-in config, or run folder, such as runs/quickstart.
        flags: flags for the keys of the config.
        step: training step whose batch is shown, from 0, as on the devices of this machine; 0 if
            not set.
        rows: number of rows of the batch to show; 3 if not set.
    """
    folder = as_path(config)
    # A missing path next to run folders is taken for a misspelled one of them.
    is_wrong = len(folder.parts) > 1 and folder.suffix != ".toml" and not folder.exists()
    if folder.is_dir() or (is_wrong and any(folder.parent.glob("*/config.toml"))):
        chosen = [name for name, value in (("--step", step), ("--rows", rows)) if value is not None]
        if names := [*(flag.name for flag in flags), *chosen]:
            raise ConfigError(
                f"inspect takes no flags for a run folder; remove {' and '.join(names)}"
            )
        return _show_run(folder)
    experiment, implied = read_config(config, flags, command="inspect")
    start_jax(experiment)
    from jaxformer import runs

    report = runs.inspect_data(experiment, step or 0, rows=3 if rows is None else rows)
    show_named("model", report.kind)
    show_named("attention", *report.attention)
    show_named("data", *implied, *report.report)
    _show_data(report)
    show_named(
        "lengths",
        *(
            f"training {name}: {least:,} to {most:,} tokens, median {_number(median)}"
            for name, least, median, most in report.lengths
        ),
    )
    for index, shared in enumerate(report.shared):
        _show_shared("" if index else "shared", shared)
    _show_batch(report.batch)


def _show_run(folder: pathlib.Path) -> None:
    """Prints the config, data and progress of a run, and commands to run next."""
    from jaxformer import runs
    from jaxformer.runs.data.summary import load_summary
    from jaxformer.runs.folder.files import CHECKPOINTS
    from jaxformer.runs.text_models.kinds import model_class
    from jaxformer.training.checkpoints import Checkpoints, checkpoint_steps

    config = runs.read_run_config(folder)
    model = model_class(config).load(folder, config)
    data, checkpoints = load_summary(folder), folder / CHECKPOINTS
    show_named("run", f"{folder}: {model.kind}; settings other than the defaults:")
    for paragraph in changed_paragraphs(config):
        show(paragraph)
    tokens = f"{data.train_tokens:,} tokens for training, {data.validation_tokens:,} for validation"
    show_named("data", f"{config.data.source}: {tokens}")
    saved = checkpoint_steps(checkpoints)
    step, steps = max(saved, default=0), config.training.steps
    show_named(
        "steps", f"{step:,} of {steps:,}; checkpoints: {', '.join(map(str, saved)) or 'none'}"
    )
    if saved:
        with Checkpoints(checkpoints, read_only=True) as opened:
            best = opened.best_step
            loss = None if best is None else opened.validation_loss(best)
        if loss is not None:
            unit = model.unit
            show_named("best", f"step {best:,}, validation loss {loss:.4f} nats per {unit}")
    name, more = shlex.quote(str(folder)), "" if step < steps else f" --training.steps {2 * steps}"
    uses = [use.format(name) for use in model.uses] if saved else []
    uses += [f"to draw the loss: jaxformer plot loss {name}"]
    uses += [f"to train further: jaxformer train {name}{more}"]
    show_named("next", *uses)


def _show_data(report: "DataReport") -> None:
    """Prints the sizes of the data, and the epochs."""
    # With several columns, only the tokens of the last one, which is predicted, are counted.
    columns = [lengths.name for lengths in report.lengths]
    of_last = f" of the {columns[-1]}" if len(columns) > 1 else ""
    for name, count, tokens in (
        ("training", report.train, report.train_tokens),
        ("validation", report.validation, report.validation_tokens),
    ):
        unit = report.unit.removesuffix("s") if count == 1 else report.unit
        parts = [] if count is None else [f"{count:,} {unit}"]
        parts += [f"{tokens:,} tokens{of_last}"] if tokens else []
        if parts:
            show_named(name, ", ".join(parts))
    if (per_epoch := report.steps_per_epoch) is not None:
        show_named(
            "epoch",
            f"{_number(per_epoch)} steps; training.steps = {report.steps:,} is "
            f"{_number(report.steps / per_epoch)} epochs",
        )


def _show_shared(name: str, shared: "SharedTexts") -> None:
    """Prints how many validation texts are also training texts, and a few of them."""
    share = f" ({_share(shared.shared, shared.total)})" if shared.shared else ""
    show_named(
        name,
        f"{shared.shared:,} of {shared.total:,} validation {shared.name} are also in the training "
        f"data{share}",
    )
    for example in shared.examples:
        shown = _escaped(example)
        cut = f"{shown[:_EXAMPLE]}..." if len(shown) > _EXAMPLE else shown
        show_named("", f"- {cut}")


def _show_batch(batch: "BatchReport") -> None:
    """Prints the arrays of a batch, what they contain, and a few rows."""
    arrays = "; ".join(f"{name} {what}" for name, what in batch.arrays.items())
    show_named("batch", f"of step {batch.step:,}: {arrays}")
    if batch.predicted is not None:
        count, total = batch.predicted
        share = f"{count:,} of {total:,} labels ({_share(count, total)})"
        show_named("loss", f"{share} are counted; each label is one {batch.unit}")
    if batch.rows and batch.marks:
        show_named("marks", batch.marks)
    for index, row in enumerate(batch.rows):
        show(f"row {index}")
        for name, text in row.items():
            _show_text(f"{name}: {text}" if len(row) > 1 else text)


def _show_text(text: str) -> None:
    """Prints one text of a row; leaves out the middle of a long one."""
    lines = _wrapped(_escaped(text), width() - _MARGIN - 1)
    if len(lines) > _MOST_LINES:
        left_out = f"... {len(lines) - _MOST_LINES + 1:,} more lines ..."
        lines = [*lines[: _MOST_LINES - 2], left_out, lines[-1]]
    for line in lines:
        show(f"{'':{_MARGIN}}{line}".rstrip())


def _escaped(text: str) -> str:
    r"""A text on one line: line breaks as \n, other control characters as codes."""
    return for_terminal(text.translate(_ESCAPES))


def _wrapped(text: str, columns: int) -> list[str]:
    """Breaks a text into lines, after spaces if possible, and keeps all spaces."""
    lines = [""]
    for word in re.findall(rf"[^ ]{{1,{columns}}} ?| ", text):
        if len(lines[-1]) + len(word.rstrip() or word) > columns:
            lines.append("")
        lines[-1] += word
    return lines


def _share(part: int, whole: int) -> str:
    """A share in percent; 0% and 100% are only shown if they are exact."""
    percent = 100 * part / max(1, whole)
    if 0 < percent < 0.01:
        return "<0.01%"
    return ">99.9%" if 99.9 < percent < 100 else f"{percent:.3g}%"


def _number(value: float) -> str:
    """A number to three digits; without decimals if it is whole or large."""
    return f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:,.3g}"
