"""A run folder while it is trained in: locked, and with its checkpoints open."""

import contextlib
import functools
import pathlib
from collections.abc import Callable, Iterator

from jaxformer.storage import remove, remove_drafts, run_lock
from jaxformer.training.checkpoints.arrays import require_readable
from jaxformer.training.checkpoints.folder import Checkpoints
from jaxformer.training.parallel import in_first_process

PROGRAM = "program.json"
"""File of a run folder with the fingerprint of what it trains."""

WRITTEN = ("checkpoints", "metrics.jsonl", "metrics.superseded.jsonl", "tensorboard",
           "profile", PROGRAM)  # fmt: skip
"""What training writes to a run folder."""


class OpenRun:
    """A run folder that the first process of a job has locked, from `open_run`.

    Args:
        folder: the run folder.
        keep: how many of the latest checkpoints to keep.
    """

    def __init__(self, folder: pathlib.Path, keep: int) -> None:
        self.folder, self._keep = folder, keep
        self._stack = contextlib.ExitStack()
        self._require_lock: Callable[[], object] = lambda: None

    def lock(self) -> None:
        """Locks the folder, in the first process of a job."""
        self._require_lock = self._stack.enter_context(run_lock(self.folder))

    @functools.cached_property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints, opened when they are first asked for."""
        checkpoints = Checkpoints(
            self.folder / "checkpoints", self._keep, require_lock=self._require_lock
        )
        return self._stack.enter_context(checkpoints)

    def __enter__(self) -> "OpenRun":
        self._stack.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]


@contextlib.contextmanager
def open_run(
    folder: pathlib.Path, keep: int, *, before: Callable[[], object] = lambda: None,
    prepare: Callable[[], object] = lambda: None,
) -> Iterator[OpenRun]:  # fmt: skip
    """Locks a run folder; the first process calls `before` before that, and `prepare` after it."""
    require_readable(folder)

    def take() -> None:
        before()
        run.lock()
        remove_drafts(folder)
        prepare()

    with OpenRun(folder, keep) as run:
        in_first_process("take the run folder", take)
        yield run


def remove_written(folder: pathlib.Path) -> None:
    """Removes what trainings have written to a locked run folder."""
    for name in WRITTEN:
        remove(folder / name)
