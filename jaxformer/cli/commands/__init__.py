"""The commands: each is a class with its options, and a function of its instance.

The keys of `settings` of a class are flags, too. Its function gets them as a second argument:
values by key, or for an `ExperimentConfig` the flags, which are merged into the tables of its file.
"""

from collections.abc import Callable
from typing import Any

from jaxformer.cli.commands import inference, inspection, plan, plot, runs, sweep, train

__all__ = ["COMMANDS", "GROUPS"]

COMMANDS: dict[str, tuple[type, Callable[..., Any]]] = {
    "configs": (runs.Configs, runs.configs),
    "train": (train.Train, train.train),
    "sweep": (sweep.Sweep, sweep.sweep),
    "prepare": (train.Prepare, train.prepare),
    "plan": (plan.Plan, plan.plan),
    "inspect": (inspection.Inspect, inspection.inspect),
    "generate": (inference.Generate, inference.generate),
    "translate": (inference.Translate, inference.translate),
    "predict": (inference.Predict, inference.predict),
    "evaluate": (runs.Evaluate, runs.evaluate),
    "convert": (runs.Convert, runs.convert),
    "verify": (runs.Verify, runs.verify),
    "plot loss": (plot.PlotLoss, plot.plot),
    "plot sweep": (plot.PlotSweep, plot.plot),
    "plot profile": (plot.PlotProfile, plot.plot),
    "plot positions": (plot.PlotPositions, plot.plot),
    "plot attention": (plot.PlotAttention, plot.plot),
}
"""Class and function of each command, in the order of the help."""

GROUPS = {
    "plot": """Draw a figure: losses, sweep, profile, positions or attention.

An existing file is replaced. Pictures need matplotlib (install jaxformer[viz]); the attention page
does not.""",
}
"""Help of the commands whose names have a second word."""
