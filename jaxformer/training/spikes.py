"""Loss spikes: steps whose loss is far above that of the steps before, kept with their batch."""

import collections
import io
import pathlib
import statistics
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxformer.storage import write_whole
from jaxformer.text import Host

__all__ = ["LossSpikes"]

_WINDOW = 100  # steps that a loss is compared with
_LEAST_SEEN = 20
_DEVIATIONS = 6.0  # of a normal distribution, by the median absolute deviation
_JUMP = 0.2  # of the median
_TAIL = 0.05  # share of the losses above the 95th percentile
_MOST_FILES = 10


class LossSpikes:
    """Finds the steps whose loss spikes, and writes their batches to `spikes/` in a run folder.

    A loss is a spike where it is above the median of the 100 steps before by more than

    - 6 robust standard deviations, which are 1.4826 times the median absolute deviation: a mean and
      a standard deviation would be moved by the spikes themselves;
    - a fifth of the median: where the noise is small, 6 of its deviations are nothing to look at;
    - twice what the 95th percentile is above it: the losses of a task that is nearly solved have
      long tails, so that the deviations alone would call 6 of 280 of its steps spikes.

    At least 20 steps must have been seen. Of spikes one after the other only the first counts, so
    that a loss that jumps and stays is one. On the losses of three small runs, by which the rule
    was chosen, it finds 1 spike in 1,740 steps: a loss 40 times the median of a task that is
    nearly solved.

    What was seen is not part of the checkpoints: a resumed run starts to count anew. Nothing here
    ends a run: a batch that cannot be written is a line.

    Args:
        folder: the run folder; None to keep no batch.
        batch_at: this host's batch of a step, counted from 0.
        print_line: prints a line for the user.
        host: which host this is.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> spikes = LossSpikes(folder, lambda step: {"x": np.arange(3) + step}, print)
        >>> for step in range(30):
        ...     spikes.compare(step, 2.0 + step % 3 / 10)
        >>> spikes.compare(30, 9.0)
        step 31: the loss spiked to 9, from a median of 2.1; its batch is in spikes/step-31.npz
        >>> sorted(np.load(folder / "spikes" / "step-31.npz"))
        ['batch/x', 'loss', 'median']
    """

    def __init__(
        self,
        folder: pathlib.Path | None,
        batch_at: Callable[[int], Any],
        print_line: Callable[[str], None],
        host: Host = Host(),
    ) -> None:
        self._folder = None if folder is None else folder / "spikes"
        self._batch_at = batch_at
        self._print, self._host = print_line, host
        self._losses: collections.deque[float] = collections.deque(maxlen=_WINDOW)
        self._in_spike = False

    def compare(self, step: int, loss: float) -> None:
        """Compares the loss of the next step with those before, and keeps the batch of a spike.

        Args:
            step: the step, counted from 0.
            loss: its mean loss, finite.
        """
        median = spike_over(self._losses, loss)
        self._losses.append(loss)
        starts, self._in_spike = median is not None and not self._in_spike, median is not None
        if median is not None and starts:
            became = self._keep(step, loss, median)
            self._print(
                f"step {step + 1}: the loss spiked to {loss:.4g}, from a median of {median:.4g}; "
                f"its batch {became}"
            )

    def _keep(self, step: int, loss: float, median: float) -> str:
        """Writes the batch of a spike, unless there are enough; says what became of it."""
        if self._folder is None:
            return "is not kept, as there is no run folder"
        try:
            host = "" if self._host.count == 1 else f"-host-{self._host.index}"
            if len(list(self._folder.glob(f"*{host}.npz"))) >= _MOST_FILES:
                return f"is not kept, as spikes/ has {_MOST_FILES} already"
            arrays = _named_arrays(self._batch_at(step))
            arrays |= {"loss": np.float64(loss), "median": np.float64(median)}
            file = io.BytesIO()
            np.savez(file, **arrays)
            name = f"step-{step + 1}{host}.npz"
            self._folder.mkdir(exist_ok=True)
            write_whole(self._folder / name, file.getvalue())
        except Exception as error:  # whatever it is, a picture for later is not worth the run
            reason = str(error).splitlines() or [type(error).__name__]
            return f"could not be kept: {reason[0]}"
        return f"is in spikes/{name}"


def spike_over(before: collections.deque[float], loss: float) -> float | None:
    """Compares a loss with those of the steps before, by the rule of `LossSpikes`.

    Args:
        before: losses of at most 100 steps.
        loss: the next one.

    Returns:
        Their median, where the loss is a spike over them, else None.
    """
    if len(before) < _LEAST_SEEN:
        return None
    median = statistics.median(before)
    rise = loss - median
    if rise <= _JUMP * abs(median):
        return None  # most steps, so that they cost one median
    deviation = 1.4826 * statistics.median(abs(x - median) for x in before)
    tail = sorted(before)[-max(1, int(_TAIL * len(before)))] - median
    return median if rise > max(_DEVIATIONS * deviation, 2 * tail) else None


def _named_arrays(batch: Any) -> dict[str, Any]:
    """Arrays of a batch by path, as NumPy can store them without pickle."""
    named = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
        array = np.asarray(leaf)
        if array.dtype.kind == "V":  # bfloat16 and the like, which NumPy's files do not know
            array = array.astype(np.float32)
        named["batch/" + jax.tree_util.keystr(path, simple=True, separator="/")] = array
    return named
