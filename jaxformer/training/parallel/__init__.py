"""Runners compile and run steps on devices; only this package knows pmap, meshes and processes.

A runner has `axis_name` (the mapped axis that a step sums over, or None), `num_devices` and
`num_local_devices` on `num_hosts`, `num_shards` and `num_local_shards` (parts that the rows of a
batch are split into), `num_sequence_parts` (parts of each row), `host` (which rows are this
host's), `has_all_params` (whether each device has all parameters), and `memory` (bytes per device).
Its `compile_train` and `compile_eval` return `Program`s.
"""

from jaxformer.training.parallel.agreement import StopAgreement, stop_agreement
from jaxformer.training.parallel.devices import num_hosts
from jaxformer.training.parallel.hosts import (
    Launch,
    is_first_process,
    num_processes,
    split_cpu,
    start_hosts,
    this_process,
)
from jaxformer.training.parallel.layout import axis_sizes
from jaxformer.training.parallel.mesh import MeshRunner
from jaxformer.training.parallel.messages import gather_texts, in_first_process, require_same
from jaxformer.training.parallel.parts import ROW_AXES
from jaxformer.training.parallel.placement import RULES, bytes_per_device
from jaxformer.training.parallel.pmap import PmapRunner
from jaxformer.training.parallel.program import Program
from jaxformer.training.parallel.runners import (
    Runner,
    make_inference_runner,
    make_runner,
    runner_kind,
)
from jaxformer.training.parallel.single import SingleRunner
from jaxformer.training.parallel.together import TogetherRunner
from jaxformer.training.parallel.watch import HostWatch

__all__ = [
    "ROW_AXES",
    "RULES",
    "HostWatch",
    "Launch",
    "MeshRunner",
    "PmapRunner",
    "Program",
    "Runner",
    "SingleRunner",
    "StopAgreement",
    "TogetherRunner",
    "axis_sizes",
    "bytes_per_device",
    "gather_texts",
    "in_first_process",
    "is_first_process",
    "make_inference_runner",
    "make_runner",
    "num_hosts",
    "num_processes",
    "require_same",
    "runner_kind",
    "split_cpu",
    "start_hosts",
    "stop_agreement",
    "this_process",
]
