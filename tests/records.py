"""Records of metrics without those that depend on the machine and its load."""

import re

METERS = (  # on a CPU
    "seconds_compiling", "seconds_evaluating", "seconds_per_step", "seconds_saving",
    "seconds_waiting_for_data",
)  # fmt: skip
_METER = re.compile(r".*_per_second|seconds_.*|flops_utilization|peak_memory_bytes")


def without_meters(records):
    return [{k: v for k, v in one.items() if not _METER.fullmatch(k)} for one in records]
