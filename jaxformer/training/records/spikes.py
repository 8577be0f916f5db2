"""Loss spikes: finds steps whose loss is far above the recent ones, and keeps their batches."""

import collections
import io
import pathlib
import statistics
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxformer.storage import first_line, write_whole
from jaxformer.text import Host

_WINDOW = 100  # steps that a loss is compared with
_LEAST_SEEN = 20  # steps before the first that can be a spike
_DEVIATIONS = 6.0  # robust standard deviations
_JUMP = 0.2  # fraction of the median
_TAIL = 0.05  # fraction of the losses above the 95th percentile
_MOST_FILES = 10


class LossSpikes:
    """Finds loss spikes, and writes the batches of their steps to `spikes/` in a run folder."""

    def __init__(
        self, folder: pathlib.Path | None, batch_at: Callable[[int], Any],
        print_line: Callable[[str], None], host: Host,
    ) -> None:  # fmt: skip
        self._folder = None if folder is None else folder / "spikes"
        self._batch_at = batch_at
        self._print, self._host = print_line, host
        # Checkpoints do not contain them: a resumed run starts without any.
        self._losses: collections.deque[float] = collections.deque(maxlen=_WINDOW)
        self._in_spike = False

    def compare(self, step: int, loss: float) -> None:
        """Compares the finite mean loss of a step, counted from 0, with those of earlier steps."""
        median = spike_over(self._losses, loss)
        self._losses.append(loss)
        # A loss that jumps and stays high is one spike.
        starts, self._in_spike = median is not None and not self._in_spike, median is not None
        if median is not None and starts:
            became = self._keep(step, loss, median)
            self._print(
                f"step {step + 1}: the loss spiked to {loss:.4g}, from a median of {median:.4g}; "
                f"its batch {became}"
            )

    def _keep(self, step: int, loss: float, median: float) -> str:
        """Writes the batch of a spike, unless there are enough; returns the outcome in words."""
        if self._folder is None:
            return "is not kept, because there is no run folder"
        try:
            host = "" if self._host.count == 1 else f"-host-{self._host.index}"
            if len(list(self._folder.glob(f"*{host}.npz"))) >= _MOST_FILES:
                return f"is not kept, because spikes/ already has {_MOST_FILES}"
            arrays = _named_arrays(self._batch_at(step))
            arrays |= {"loss": np.float64(loss), "median": np.float64(median)}
            file = io.BytesIO()
            np.savez(file, **arrays)
            name = f"step-{step + 1}{host}.npz"
            self._folder.mkdir(exist_ok=True)
            write_whole(self._folder / name, file.getvalue())
        except Exception as error:  # keeping a batch must never end a run
            return f"could not be kept: {first_line(error)}"
        return f"is in spikes/{name}"


def spike_over(before: collections.deque[float], loss: float) -> float | None:
    """Median of the losses before if the next loss is a spike, else None.

    A spike exceeds the median by more than 6 robust standard deviations, a fifth of the median, and
    twice the distance from the median to the 95th percentile.
    """
    # On the losses of the three small runs for which this rule was chosen, it finds 1 spike in
    # 1,740 steps: 40 times the median, in a nearly solved task.
    if len(before) < _LEAST_SEEN:
        return None
    median = statistics.median(before)
    rise = loss - median
    # If the noise is small, 6 deviations are too little to matter.
    if rise <= _JUMP * abs(median):
        return None  # true of most steps, which thus cost one median
    # Spikes would inflate the plain standard deviation.
    deviation = 1.4826 * statistics.median(abs(x - median) for x in before)
    # The losses of a nearly solved task have a long tail: by deviations alone, 6 of its 280 steps
    # would be spikes.
    tail = sorted(before)[-max(1, int(_TAIL * len(before)))] - median
    return median if rise > max(_DEVIATIONS * deviation, 2 * tail) else None


def _named_arrays(batch: Any) -> dict[str, Any]:
    """Arrays of a batch by path, in dtypes that NumPy stores without pickle."""
    named = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
        array = np.asarray(leaf)
        if array.dtype.kind == "V":  # bfloat16 and others that .npz does not support
            array = array.astype(np.float32)
        named["batch/" + jax.tree_util.keystr(path, simple=True, separator="/")] = array
    return named
