"""The commands: each is a class with its options, which tyro reads, and a function."""

from collections.abc import Callable
from typing import Annotated, Any, Union

import tyro

from jaxformer.cli.commands.inference import (
    Generate,
    Predict,
    Translate,
    generate,
    predict,
    translate,
)
from jaxformer.cli.commands.inspection import Inspect, inspect
from jaxformer.cli.commands.plan import Plan, plan
from jaxformer.cli.commands.plot import Plot, plot
from jaxformer.cli.commands.runs import (
    Configs,
    Convert,
    Evaluate,
    Verify,
    configs,
    convert,
    evaluate,
    verify,
)
from jaxformer.cli.commands.sweep import Sweep, sweep
from jaxformer.cli.commands.train import Prepare, Train, prepare, train

__all__ = ["COMMANDS", "TAKE_WORDS", "all_commands"]

COMMANDS: dict[type, Callable[[Any], None]] = {
    Configs: configs, Train: train, Sweep: sweep, Prepare: prepare, Plan: plan, Inspect: inspect,
    Generate: generate, Translate: translate, Predict: predict, Evaluate: evaluate,
    Convert: convert, Verify: verify, Plot: plot,
}  # fmt: skip
"""Function of each command, in the order of the help."""

TAKE_WORDS = {"train": train, "sweep": sweep, "prepare": prepare, "plan": plan, "inspect": inspect}
"""Functions of words, by name: the keys of a config are flags of these commands, too."""


def all_commands(*, brief: bool) -> Any:
    """The commands, for tyro; if brief, each is described by the first line of its docstring."""
    says = {kind: str(kind.__doc__).partition("\n")[0] if brief else None for kind in COMMANDS}
    named = [
        Annotated[kind, tyro.conf.subcommand(kind.__name__.lower(), description=says[kind])]
        for kind in COMMANDS
    ]
    return Union[*named]
