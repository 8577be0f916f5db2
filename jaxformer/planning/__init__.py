"""Plans of training runs: memory and time, without accelerators, data, or the model in memory."""

from jaxformer.accelerators import ACCELERATORS, Accelerator, find_accelerator
from jaxformer.flops import count_flops, count_model_flops
from jaxformer.planning.collectives import Collective
from jaxformer.planning.compiler import CompiledStep
from jaxformer.planning.memory import MemoryNeeds, memory_needs
from jaxformer.planning.plan import Plan, make_plan, setting_that_fits

__all__ = [
    "ACCELERATORS", "Accelerator", "Collective", "CompiledStep", "MemoryNeeds", "Plan",
    "count_flops", "count_model_flops", "find_accelerator", "make_plan", "memory_needs",
    "setting_that_fits",
]  # fmt: skip
