"""jaxformer verify."""

import sys

from jaxformer.cli.commands import Verify
from jaxformer.cli.terminal import show

__all__ = ["verify"]


def verify(command: Verify) -> None:
    """Prints a line for a run folder and each checkpoint; exit status 1 if one is damaged."""
    from jaxformer import runs

    found = runs.verify_run(command.run)
    for part in found:
        said = "good" if part.damage is None else f"damaged: {' '.join(part.damage.split())}"
        show(f"{part.name}: {said}")
    if any(part.damage is not None for part in found):
        sys.exit(1)
