"""SIGINT and SIGTERM: cutting work short, or finishing it first.

Imports little: until the command line calls `install`, Python's own signal handling applies.
"""

from jaxformer.stopping.process import finishing, install, is_cut_short, saved_note, say_stopped
from jaxformer.stopping.signals import Stopped, StopSignals

__all__ = [
    "StopSignals", "Stopped", "finishing", "install", "is_cut_short", "saved_note",
    "say_stopped",
]  # fmt: skip
