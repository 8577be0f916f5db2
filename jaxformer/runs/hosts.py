"""What the hosts of a job must agree on before they train in one run folder."""

import pathlib
import platform
import socket
import time

import jax

from jaxformer import __version__
from jaxformer.errors import CheckpointError
from jaxformer.runs.data.values import DataSummary
from jaxformer.runs.folder.files import is_run
from jaxformer.runs.weights.source import WeightSource
from jaxformer.storage import lock_holder
from jaxformer.training.parallel import Runner, gather_texts, is_first_process, require_same

_LAG = 30.0  # seconds until a network file system shows the files of another host


def versions() -> dict[str, object]:
    """Versions that must be equal on all hosts, besides config and data."""
    return {
        "jaxformer": __version__,
        "jax": jax.__version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "the number of devices": jax.local_device_count(),
    }


def require_same_data(
    summary: DataSummary, trained: int, source: WeightSource | None, runner: Runner
) -> None:
    """Raises ConfigError if hosts have other data, checkpoints or weights to start from."""
    # A single host has no other to compare with, and the digest reads all weights.
    is_known = trained or runner.num_hosts == 1 or source is None
    require_same(
        "data",
        {
            "data": summary.fingerprint,
            "the newest checkpoint": trained,
            "init_from": None if is_known or source is None else source.identity,
        },
    )


def require_shared(folder: pathlib.Path) -> None:
    """Raises CheckpointError if a host does not see the first host's run folder."""
    holder = gather_texts(lock_holder(folder))[0]
    deadline = time.monotonic() + _LAG

    def is_seen() -> bool:
        return is_run(folder) and lock_holder(folder) == holder

    while not is_seen() and not is_first_process() and time.monotonic() < deadline:
        time.sleep(0.1)
    if hosts := "".join(gather_texts("" if is_seen() else f" {socket.gethostname()}")):
        raise CheckpointError(
            f"out={folder} must be on a file system that all hosts share; the first host's folder "
            f"is not seen by{hosts}"
        )
