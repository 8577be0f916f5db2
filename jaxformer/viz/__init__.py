"""Figures of runs and models, drawn with matplotlib, and an HTML page of attention."""

from jaxformer.viz.attention import attention_heatmaps
from jaxformer.viz.attention_page import AttentionPage, attention_page
from jaxformer.viz.distributions import distributions
from jaxformer.viz.positions import (
    cosine_distance_heatmap,
    position_bias_curves,
    position_curves,
    position_heatmap,
    rotary_heatmaps,
)
from jaxformer.viz.profile import time_bars
from jaxformer.viz.sweeps import sweep_curves
from jaxformer.viz.training import loss_curves

__all__ = [
    "AttentionPage",
    "attention_heatmaps",
    "attention_page",
    "cosine_distance_heatmap",
    "distributions",
    "loss_curves",
    "position_bias_curves",
    "position_curves",
    "position_heatmap",
    "rotary_heatmaps",
    "sweep_curves",
    "time_bars",
]
