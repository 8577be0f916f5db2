"""SIGINT and SIGTERM: work that they cut short, and work that is finished first.

Imports little, because until the command line has called `install`, Python's own handling holds.
"""

from jaxformer.stopping.process import finishing, install, is_cut_short, saved_note, say_stopped
from jaxformer.stopping.signals import Stopped, StopSignals

__all__ = [
    "StopSignals",
    "Stopped",
    "finishing",
    "install",
    "is_cut_short",
    "saved_note",
    "say_stopped",
]
