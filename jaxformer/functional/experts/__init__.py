"""Sparse mixture of experts: route, sort, group, compute, combine."""

from jaxformer.functional.experts.mixture import ExpertsOutput, ExpertsParams, mixture_of_experts
from jaxformer.functional.experts.sharded import ExpertsLayout

__all__ = ["ExpertsLayout", "ExpertsOutput", "ExpertsParams", "mixture_of_experts"]
