"""Sweeps: runs that differ in numbers train in one program, each in a run folder."""

from jaxformer.training.sweep.file import read_sweep
from jaxformer.training.sweep.fit import fit_sweep
from jaxformer.training.sweep.group import train_specs
from jaxformer.training.sweep.names import combine_values, name_runs
from jaxformer.training.sweep.runs import SweepRun, SweepSpec, Trial

__all__ = [
    "SweepRun",
    "SweepSpec",
    "Trial",
    "combine_values",
    "fit_sweep",
    "name_runs",
    "read_sweep",
    "train_specs",
]
