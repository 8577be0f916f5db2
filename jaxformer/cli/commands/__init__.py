"""The commands: each is a class with its options, which tyro reads, and a function."""

from collections.abc import Callable
from typing import Annotated, Any, Union

import tyro

from jaxformer.cli.commands import inference, inspection, plan, plot, runs, sweep, train

__all__ = ["COMMANDS", "TAKE_WORDS", "all_commands"]

COMMANDS: dict[type, Callable[[Any], None]] = {
    runs.Configs: runs.configs,
    train.Train: train.train,
    sweep.Sweep: sweep.sweep,
    train.Prepare: train.prepare,
    plan.Plan: plan.plan,
    inspection.Inspect: inspection.inspect,
    inference.Generate: inference.generate,
    inference.Translate: inference.translate,
    inference.Predict: inference.predict,
    runs.Evaluate: runs.evaluate,
    runs.Convert: runs.convert,
    runs.Verify: runs.verify,
    plot.Plot: plot.plot,
}
"""Function of each command, in the order of the help."""

TAKE_WORDS = {
    "train": train.train,
    "sweep": sweep.sweep,
    "prepare": train.prepare,
    "plan": plan.plan,
    "inspect": inspection.inspect,
}
"""Functions of words, by name: the keys of a config are flags of these commands, too."""


def all_commands(*, brief: bool) -> Any:
    """The commands, for tyro; if brief, each is described by the first line of its docstring."""
    says = {kind: str(kind.__doc__).partition("\n")[0] if brief else None for kind in COMMANDS}
    named = [
        Annotated[kind, tyro.conf.subcommand(kind.__name__.lower(), description=says[kind])]
        for kind in COMMANDS
    ]
    return Union[*named]
