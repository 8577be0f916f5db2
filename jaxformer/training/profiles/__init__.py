"""Profiles of training steps: traces by `jax.profiler`, and where their time went."""

from jaxformer.training.profiles.profiler import StepProfiler, check_profile
from jaxformer.training.profiles.trace import StepProfile, read_profile

__all__ = ["StepProfile", "StepProfiler", "check_profile", "read_profile"]
