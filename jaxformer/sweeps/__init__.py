"""Sweeps: many runs of one config at once, and a table of their results."""

from jaxformer.sweeps.configs import sweep_configs
from jaxformer.sweeps.results import SweepTable, sweep_table
from jaxformer.sweeps.train import train_configs, train_sweep

__all__ = ["SweepTable", "sweep_configs", "sweep_table", "train_configs", "train_sweep"]
