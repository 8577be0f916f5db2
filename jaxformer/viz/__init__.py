"""Figures of training runs and models."""

from jaxformer.viz.figures import loss_curve

__all__ = ["loss_curve"]
