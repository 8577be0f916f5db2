"""Linear layers, whose kernel is an array or has a low-rank correction (LoRA)."""

from jaxformer.functional.linear.layer import check_linear, linear, on_rows
from jaxformer.functional.linear.low_rank import Kernel, LowRankKernel, checked_base, matmul

__all__ = [
    "Kernel",
    "LowRankKernel",
    "check_linear",
    "checked_base",
    "linear",
    "matmul",
    "on_rows",
]
