"""Runners compile and run steps on devices; only this package knows pmap, meshes and processes."""

from jaxformer.training.parallel.hosts import (
    from_first_process,
    gather_texts,
    in_first_process,
    is_first_process,
    is_stop_reached,
    num_processes,
    require_same,
    start_hosts,
    this_process,
)
from jaxformer.training.parallel.layout import axis_sizes, num_row_parts
from jaxformer.training.parallel.mesh import MeshRunner
from jaxformer.training.parallel.placement import bytes_per_device
from jaxformer.training.parallel.pmap import PmapRunner
from jaxformer.training.parallel.runner import Program, Runner, SingleRunner
from jaxformer.training.parallel.runners import (
    check_batch_size,
    make_inference_runner,
    make_runner,
    runner_kind,
    runner_on,
    split_cpu,
)
from jaxformer.training.parallel.together import TogetherRunner

__all__ = [
    "MeshRunner", "PmapRunner", "Program", "Runner", "SingleRunner", "TogetherRunner",
    "axis_sizes", "bytes_per_device", "check_batch_size", "from_first_process", "gather_texts",
    "in_first_process", "is_first_process", "is_stop_reached", "make_inference_runner",
    "make_runner", "num_processes", "num_row_parts", "require_same", "runner_kind", "runner_on",
    "split_cpu", "start_hosts", "this_process",
]  # fmt: skip
