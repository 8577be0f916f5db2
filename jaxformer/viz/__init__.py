"""Figures of runs and models, drawn with matplotlib, and an HTML page of attention."""

from jaxformer.viz.attention import attention_heatmaps
from jaxformer.viz.attention_page import AttentionMap, AttentionPage, attention_page
from jaxformer.viz.positions import position_heatmaps
from jaxformer.viz.runs import loss_curves, sweep_curves, time_bars

__all__ = [
    "AttentionMap",
    "AttentionPage",
    "attention_heatmaps",
    "attention_page",
    "loss_curves",
    "position_heatmaps",
    "sweep_curves",
    "time_bars",
]
