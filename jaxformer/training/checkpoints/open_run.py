"""A run folder while it is trained in: locked, and with its checkpoints open."""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator

from jaxformer.storage import remove_drafts, run_lock
from jaxformer.training.checkpoints.arrays import require_readable
from jaxformer.training.checkpoints.folder import Checkpoints
from jaxformer.training.parallel import in_first_process


@dataclasses.dataclass
class OpenRun:
    """A run folder that the first process of a job has locked, from `open_run`."""

    folder: pathlib.Path
    keep: int
    """How many of the latest checkpoints to keep."""
    stack: contextlib.ExitStack
    require_lock: Callable[[], object] = lambda: None
    """Raises StorageError if the lock is lost."""

    @functools.cached_property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints, opened when they are first asked for."""
        return self.stack.enter_context(
            Checkpoints(self.folder / "checkpoints", self.keep, require_lock=self.require_lock)
        )


@contextlib.contextmanager
def open_run(
    folder: pathlib.Path, keep: int, *, before: Callable[[], object] = lambda: None,
    prepare: Callable[[], object] = lambda: None,
) -> Iterator[OpenRun]:  # fmt: skip
    """Locks a run folder; the first process calls `before` before that, and `prepare` after it."""
    require_readable(folder)
    with contextlib.ExitStack() as stack:
        run = OpenRun(folder, keep, stack)

        def take() -> None:
            before()
            run.require_lock = stack.enter_context(run_lock(folder))
            remove_drafts(folder)
            prepare()

        in_first_process("take the run folder", take)
        yield run
