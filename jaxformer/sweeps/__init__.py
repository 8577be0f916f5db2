"""Sweeps: many runs at once, of a config or of your own loss, and a table of their results."""

from jaxformer.sweeps.fit import fit_sweep
from jaxformer.sweeps.results import SweepTable, sweep_table
from jaxformer.sweeps.runs import SweepRun
from jaxformer.sweeps.train import sweep_configs, train_sweep

__all__ = [
    "SweepRun", "SweepTable", "fit_sweep", "sweep_configs", "sweep_table", "train_sweep",
]  # fmt: skip
