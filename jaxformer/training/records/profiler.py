"""Traces of training steps by `jax.profiler`."""

import pathlib
from typing import Any

import jax

from jaxformer.errors import ConfigError, StorageError
from jaxformer.storage import make_folder

FOLDER = "profile"


class StepProfiler:
    """Traces some steps of a training into `profile/` of its run folder.

    Args:
        steps_to_trace: the steps, counted from 1; None for none.
        folder: the run folder.
        start: step that the training starts from.
        steps: its last step.

    Raises:
        ConfigError: there is no folder, or the steps are not all among those to be taken.
    """

    def __init__(
        self, steps_to_trace: range | None = None, folder: pathlib.Path | None = None, *,
        start: int = 0, steps: int = 0,
    ) -> None:  # fmt: skip
        self._steps, self._folder, self._is_tracing = steps_to_trace, folder, False
        if steps_to_trace is None:
            return
        if folder is None:
            raise ConfigError("a profile is written to the run folder, got folder=None; give one")
        first, end, stride = steps_to_trace.start, steps_to_trace.stop, steps_to_trace.step
        if not (start < first < end <= steps + 1 and stride == 1):
            raise ConfigError(
                f"profile must be steps between {start + 1} and {steps}, one after the other, got "
                f"{first}:{end}; {start + 1}:{min(start + 6, steps + 1)} traces the first ones"
            )

    def __enter__(self) -> "StepProfiler":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def before(self, step: int, last_metrics: Any) -> None:
        """Starts the trace before its first step, when the step before that one has ended."""
        if self._steps is not None and step == self._steps.start:
            jax.block_until_ready(last_metrics)
            self._start()

    def after(self, step: int, metrics: Any) -> None:
        """Ends the trace when its last step has ended."""
        if self._steps is not None and step == self._steps.stop - 1:
            jax.block_until_ready(metrics)
            self._stop()

    def _start(self) -> None:
        assert self._folder is not None
        make_folder(self._folder / FOLDER)
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # every call of Python would be an event
        try:
            jax.profiler.start_trace(self._folder / FOLDER, profiler_options=options)
        except RuntimeError as error:
            raise ConfigError(f"cannot trace steps while another trace is taken: {error}") from None
        self._is_tracing = True

    def _stop(self) -> None:
        if not self._is_tracing:
            return
        self._is_tracing = False
        try:
            jax.profiler.stop_trace()
        except (OSError, RuntimeError) as error:
            raise StorageError(f"cannot write the trace to {self._folder}: {error}") from None
