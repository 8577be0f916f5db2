"""Sweeps: runs that differ in numbers train in one program, each in a run folder."""

from jaxformer.training.sweep.fit import fit_sweep
from jaxformer.training.sweep.runs import SweepRun, SweepSpec, combine_values, name_runs, read_sweep
from jaxformer.training.sweep.train import train_specs

__all__ = [
    "SweepRun", "SweepSpec", "combine_values", "fit_sweep", "name_runs", "read_sweep",
    "train_specs",
]  # fmt: skip
