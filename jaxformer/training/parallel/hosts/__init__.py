"""The processes of a job on several hosts: their start, messages, agreement on stopping, watch."""

from jaxformer.training.parallel.hosts.agreement import StopAgreement, stop_agreement
from jaxformer.training.parallel.hosts.launch import Launch, start_hosts
from jaxformer.training.parallel.hosts.messages import (
    gather_texts,
    in_first_process,
    is_first_process,
    num_processes,
    require_same,
    this_process,
)
from jaxformer.training.parallel.hosts.watch import HostWatch

__all__ = [
    "HostWatch", "Launch", "StopAgreement", "gather_texts", "in_first_process",
    "is_first_process", "num_processes", "require_same", "start_hosts", "stop_agreement",
    "this_process",
]  # fmt: skip
