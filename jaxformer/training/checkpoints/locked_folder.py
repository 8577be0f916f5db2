"""A run folder while it is trained in: locked on a disk, and with its checkpoints open."""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator

from jaxformer.storage import in_bucket, remove_drafts, run_lock
from jaxformer.training.checkpoints.arrays import require_readable
from jaxformer.training.checkpoints.folder import Checkpoints
from jaxformer.training.parallel import in_first_process


@dataclasses.dataclass
class LockedFolder:
    """A run folder that the first process of a job has locked, from `lock_folder`."""

    folder: pathlib.Path
    keep: int
    """How many of the latest checkpoints to keep."""
    stack: contextlib.ExitStack

    @functools.cached_property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints, opened when they are first asked for."""
        return self.stack.enter_context(Checkpoints(self.folder / "checkpoints", self.keep))


@contextlib.contextmanager
def lock_folder(
    folder: pathlib.Path, keep: int, *, before: Callable[[], object] = lambda: None,
    prepare: Callable[[], object] = lambda: None,
) -> Iterator[LockedFolder]:  # fmt: skip
    """The first process calls `before`, locks a folder on a disk, and calls `prepare`."""
    require_readable(folder)
    with contextlib.ExitStack() as stack:

        def take() -> None:
            before()
            if not in_bucket(folder):
                stack.enter_context(run_lock(folder))
            remove_drafts(folder)
            prepare()

        in_first_process("take the run folder", take)
        yield LockedFolder(folder, keep, stack)
