"""Opening the run that a command is about."""

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
    """Opens the run of a command, whose task must have one of these methods, if any are given."""
    from jaxformer import runs

    fsdp, tensor = command.opening.mesh.fsdp, command.opening.mesh.tensor
    mesh = None
    if not (fsdp is None and tensor is None):
        mesh = MeshConfig(fsdp=1 if fsdp is None else fsdp, tensor=1 if tensor is None else tensor)
    opening = command.opening
    run = runs.open_run(
        command.run, opening.step, mesh=mesh, dtype=opening.dtype, max_len=opening.max_len,
        ignore=opening.ignore, base=opening.base, source_language=opening.source_language,
        target_language=opening.target_language,
    )  # fmt: skip
    if abilities:
        run.require(*abilities, user=type(command).__name__.lower())
    return run
