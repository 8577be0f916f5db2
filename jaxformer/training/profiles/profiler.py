"""Takes traces of training steps with `jax.profiler`."""

import contextlib
import pathlib
from collections.abc import Callable
from typing import Any

import jax

from jaxformer.errors import ConfigError, StorageError
from jaxformer.storage import written_folder
from jaxformer.training.records import Activity, WallClock

FOLDER = "profile"
STEP = "train"  # name of a step in a trace


class StepProfiler:
    """Traces some steps of a training into `profile/` of its run folder.

    Of a resumed training, it traces the steps that are left, so that the same command resumes it.
    A trace that cannot be taken or written is said, and ends no training.

    Args:
        clock: clock of the training, which counts starting and writing a trace as other activity.
        steps: the steps, counted from 1; None for none. They have passed `check_profile`.
        folder: the run folder.
        start: step that the training starts from.
        print_line: prints why there is no trace, or less of it.

    """

    def __init__(
        self, clock: WallClock, steps: range | None = None, folder: pathlib.Path | None = None, *,
        start: int = 0, print_line: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        self._clock, self._print, self._is_tracing = clock, print_line, False
        self._first, self._last, self._folder = 0, 0, folder and folder / FOLDER
        self._written = contextlib.ExitStack()
        if steps is not None and folder is not None:
            self._first, self._last = max(steps.start, start + 1), steps.stop - 1
            if steps.start <= start:
                left = "none of them is" if start >= self._last else f"only {self._first} on are"
                print_line(
                    f"steps {steps.start} to {self._last} were to be traced; {left} left after "
                    f"step {start}"
                )

    def __enter__(self) -> "StepProfiler":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def before(self, step: int, last_metrics: Any) -> None:
        """Starts the trace before its first step, when the step before that one has ended."""
        if step == self._first <= self._last:
            jax.block_until_ready(last_metrics)
            with self._clock.during(Activity.OTHER):
                self._start()

    def after(self, step: int, metrics: Any) -> None:
        """Ends the trace when its last step has ended."""
        if self._is_tracing and step == self._last:
            jax.block_until_ready(metrics)
            with self._clock.during(Activity.OTHER):
                self._stop()

    def _start(self) -> None:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # every call of Python would be an event
        try:
            assert self._folder is not None  # or there were no steps to trace
            path = self._written.enter_context(written_folder(self._folder))
            jax.profiler.start_trace(str(path), profiler_options=options)
        except (StorageError, RuntimeError) as error:  # such as another trace
            self._written.close()
            self._print(f"no step is traced: {error}")
        else:
            self._is_tracing = True

    def _stop(self) -> None:
        if not self._is_tracing:
            return
        self._is_tracing = False
        try:
            with self._written:
                jax.profiler.stop_trace()
        except (OSError, RuntimeError, StorageError) as error:
            self._print(
                f"the trace cannot be written to {self._folder}: {error}; check its free space and "
                "permissions"
            )


def check_profile(steps: range, folder: pathlib.Path | None, end: int) -> None:
    """Raises ConfigError for steps that a training of `end` steps lacks, or an unusable folder."""
    if not (1 <= steps.start < steps.stop <= end + 1 and steps.step == 1):
        raise ConfigError(
            f"steps to trace must be consecutive and in 1 .. {end}, got {steps}; try "
            f"{min(2, end)}:{min(7, end + 1)}"
        )
    if folder is None:
        raise ConfigError("profile needs a run folder to write to, got folder=None; pass a folder")
    try:
        str(folder).encode()
    except UnicodeEncodeError:  # JAX takes no other path
        raise ConfigError(
            f"profile needs a run folder whose path is UTF-8, got {str(folder)!r}; rename it"
        ) from None
