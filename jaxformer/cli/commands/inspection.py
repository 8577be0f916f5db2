"""jaxformer inspect."""

import statistics
from typing import TYPE_CHECKING

from jaxformer.cli.experiment import ConfigFlags, read_config, start_jax
from jaxformer.cli.terminal import show, show_named, wrapped
from jaxformer.config.checks import NonNegativeInt

if TYPE_CHECKING:
    from jaxformer.runs import DataReport

_MOST = 600  # characters shown of the text of a row
_EXAMPLE = 60  # of a shared text
_ESCAPES = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})


def inspect(
    config: str,
    *,
    flags: ConfigFlags,
    step: NonNegativeInt = 0,
    rows: NonNegativeInt = 3,
) -> None:
    """Show the data and a batch of a config.

    This prepares the data as jaxformer train does for a new run. It shows lengths, texts that
    validation and training share, and decoded rows of a batch. It creates no model and no run
    folder. Flags override keys, as in jaxformer train.

    Args:
        config: config file, name of a built-in config, or run folder, such as runs/quickstart.
        step: training step whose batch is shown, from 0, as on the devices of this machine.
        rows: number of rows of the batch to show.
    """
    experiment = read_config(config, flags)
    start_jax(experiment)
    from jaxformer import runs
    from jaxformer.runs.data.view import counted

    report = runs.inspect_data(experiment, step, rows=rows)
    show_named("model", report.task.model.kind)
    _show_data(report)
    lengths = [
        f"training {name}: {sizes.min():,} to {sizes.max():,} tokens, median "
        f"{_number(statistics.median(sizes.tolist()))}"
        for name, sizes in report.view.lengths.items()
        if sizes.size
    ]
    show_named("lengths", *lengths)
    for index, shared in enumerate(report.view.shared):
        total = counted(shared.total, f"validation {shared.name}")
        examples = [f"- {_cut(example, _EXAMPLE)}" for example in shared.examples]
        count = f"{shared.shared:,} of {total} also in the training data"
        show_named("" if index else "shared", count, *examples)
    _show_batch(report)


def _show_data(report: "DataReport") -> None:
    """Prints the sizes of the data, and the epochs."""
    from jaxformer.runs.data.view import counted

    # With several columns, only the tokens of the last one, which is predicted, are counted.
    view, columns = report.view, [*report.view.lengths]
    column = f" of the {columns[-1]}" if len(columns) > 1 else ""
    summary, steps = report.task.summary, report.task.config.training.steps
    for name, count, tokens in (
        ("training", summary.documents or None, summary.train_tokens),
        ("validation", view.validation, summary.validation_tokens),
    ):
        sizes = [] if count is None else [counted(count, view.unit)]
        sizes += [f"{tokens:,} tokens{column}"] if tokens else []
        if sizes:
            show_named(name, ", ".join(sizes))
    if (epoch := report.steps_per_epoch) is not None:
        epochs = f"training.steps = {steps:,} is {_number(steps / epoch)} epochs"
        show_named("epoch", f"{_number(epoch)} steps; {epochs}")


def _show_batch(report: "DataReport") -> None:
    """Prints the arrays of a batch, what they contain, and a few rows."""
    unit = report.task.model.unit
    arrays = "; ".join(f"{name} {array}" for name, array in report.arrays.items())
    show_named("batch", f"of step {report.step:,}: {arrays}")
    if report.predicted is not None:
        count, total = report.predicted
        show_named("loss", f"{count:,} of {total:,} labels are counted; each label is one {unit}")
    if report.rows and report.task.marks:
        show_named("marks", report.task.marks)
    for index, row in enumerate(report.rows):
        show(f"row {index}")
        for name, text in row.items():
            shown = _cut(text, _MOST)
            show(wrapped(f"{name}: {shown}" if len(row) > 1 else shown, first="  ", indent="  "))


def _cut(text: str, most: int) -> str:
    r"""The start of a text, on one line: line breaks as \n."""
    shown = text.translate(_ESCAPES)
    return shown if len(shown) <= most else f"{shown[:most]}..."


def _number(value: float) -> str:
    """A number to three digits; without decimals if it is whole or large."""
    return f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:,.3g}"
