"""Opening the run that a command uses."""

from typing import TYPE_CHECKING

from jaxformer.cli.commands import Evaluate, Generate, Predict, Translate
from jaxformer.cli.plot_commands import PlotAttention, PlotPositions
from jaxformer.config import MeshConfig

if TYPE_CHECKING:
    from jaxformer.runs import Run

__all__ = ["open_for"]


def open_for(
    command: Generate | Translate | Predict | Evaluate | PlotPositions | PlotAttention,
    *abilities: str,
) -> "Run":
    """Opens the run of a command; if abilities are given, its task must have one of them."""
    from jaxformer import runs

    opening = command.opening
    fsdp, tensor, mesh = opening.mesh.fsdp, opening.mesh.tensor, None
    if not (fsdp is None and tensor is None):
        mesh = MeshConfig(fsdp=1 if fsdp is None else fsdp, tensor=1 if tensor is None else tensor)
    run = runs.open_run(command.run, **{**vars(opening), "mesh": mesh})
    if abilities:
        run.require(*abilities, user=type(command).__name__.lower())
    return run
