"""The commands: each is a function, whose parameters `jaxformer.cli.parsing` explains."""

from collections.abc import Callable

from jaxformer.cli.commands import inference, inspection, plan, plot, runs, sweep, train

__all__ = ["COMMANDS", "GROUPS"]

COMMANDS: dict[str, Callable[..., None]] = {
    "configs": runs.configs,
    "train": train.train,
    "sweep": sweep.sweep,
    "prepare": train.prepare,
    "plan": plan.plan,
    "inspect": inspection.inspect,
    "generate": inference.generate,
    "translate": inference.translate,
    "predict": inference.predict,
    "evaluate": runs.evaluate,
    "convert": runs.convert,
    "verify": runs.verify,
    "plot loss": plot.plot_loss,
    "plot sweep": plot.plot_sweep,
    "plot profile": plot.plot_profile,
    "plot attention": plot.plot_attention,
}
"""Function of each command, in the order of the help."""

GROUPS = {
    "plot": """Draw a figure: losses, sweep, profile, positions or attention.

An existing file is replaced. Pictures need matplotlib (install jaxformer[viz]); the attention page
does not.""",
}
"""Help of the commands whose names have a second word."""
