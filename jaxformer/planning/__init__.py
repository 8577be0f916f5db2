"""Plans of training runs, made without the accelerators, the data, or memory for the model."""

from jaxformer.planning.accelerators import ACCELERATORS, Accelerator, find_accelerator
from jaxformer.planning.collectives import Collective
from jaxformer.planning.compiler import CompiledStep
from jaxformer.planning.flops import Flops, forward_flops, step_flops
from jaxformer.planning.memory import MemoryNeeds, memory_needs
from jaxformer.planning.plan import Plan, make_plan, nearest_that_fits

__all__ = [
    "ACCELERATORS",
    "Accelerator",
    "Collective",
    "CompiledStep",
    "Flops",
    "MemoryNeeds",
    "Plan",
    "find_accelerator",
    "forward_flops",
    "make_plan",
    "memory_needs",
    "nearest_that_fits",
    "step_flops",
]
