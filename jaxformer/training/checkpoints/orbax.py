"""Around Orbax: plain paths, checked shapes and dtypes, and quiet logs."""

import contextlib
import logging
import os
import pathlib
import tempfile
from contextlib import AbstractContextManager
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from jaxformer.errors import CheckpointError, StorageError
from jaxformer.storage import PLAIN, first_line, lexists
from jaxformer.training.parallel import num_processes, this_process

_LINK = "folder"


def load_arrays(path: pathlib.Path, templates: dict[str, Any], where: pathlib.Path) -> Any:
    """Loads items of a checkpoint by name; `where` is its path for messages, `path` for Orbax."""
    try:
        return _load(path, templates, where)
    finally:
        # Even after success: TensorStore reads missing parts of an array as zeros.
        if not lexists(where):
            raise CheckpointError(
                f"{where} was removed while it was read, probably by a training that removes old "
                "checkpoints; try again, with another step if you chose this one"
            )


def _load(path: pathlib.Path, templates: dict[str, Any], where: pathlib.Path) -> Any:
    try:
        stored = ocp.checkpointables_metadata(path).metadata
        trees = {name: stored[name] for name in templates}
    except Exception as error:  # Orbax and TensorStore raise many kinds
        raise _unreadable(where, error) from error
    for name, template in templates.items():
        if name != "opt_state" and not jax.tree.leaves(trees[name]):  # SGD has no state
            raise _unreadable(where, f"{name} is empty")
        _check_same_shapes(f"{where}, {name}", trees[name], template)
    try:
        with _context(templates):
            return ocp.load_checkpointables(path, jax.tree.map(_abstract, templates))
    except Exception as error:
        raise _unreadable(where, error) from error


def _context(templates: Any) -> AbstractContextManager[Any]:
    """Orbax context in which a process loads its own arrays without waiting for the others."""
    shardings = [leaf.sharding for leaf in jax.tree.leaves(templates)]
    if num_processes() == 1 or not all(sharding.is_fully_addressable for sharding in shardings):
        return contextlib.nullcontext()
    own = this_process()
    return ocp.Context(
        multiprocessing_options=ocp.options.MultiprocessingOptions(
            primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"process_{own}"
        )
    )


def _unreadable(where: pathlib.Path, reason: object) -> CheckpointError:
    return CheckpointError(
        f"{where} cannot be read ({first_line(reason)[:200]}), although it is undamaged; another "
        "version of Orbax or another program may have written it"
    )


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def _check_same_shapes(where: str, stored: Any, template: Any) -> None:
    """Compares shapes and dtypes, because Orbax would cast and reshape silently."""
    old, new, whole = _leaves(stored), _leaves(template), "configuration"
    if where.endswith(" opt_state"):
        whole = "optimizer: pass the one that the run was trained with, or choose another folder"
    for name in sorted(old.keys() | new.keys()):
        before, after = (_described(leaves.get(name)) for leaves in (old, new))
        if before != after:
            raise CheckpointError(
                f"{where}: {name} is {before or 'missing'}, the model expects "
                f"{after or 'nothing'}; it belongs to another {whole}"
            )
        _check_chunks(f"{where}: {name}", old[name])


def _leaves(tree: Any) -> dict[str, Any]:
    """Leaves of a pytree by path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _described(leaf: Any) -> tuple[tuple[int, ...], str] | None:
    return None if leaf is None else (tuple(leaf.shape), str(leaf.dtype))


def _check_chunks(where: str, leaf: Any) -> None:
    """Refuses chunks larger than their array: TensorStore allocates a whole chunk."""
    for name in ("chunk_shape", "write_shape"):
        chunk = getattr(leaf.storage_metadata, name, None) or ()
        if any(size > max(axis, 1) for size, axis in zip(chunk, leaf.shape, strict=False)):
            raise CheckpointError(
                f"{where} has shape {tuple(leaf.shape)}, but its chunks have {tuple(chunk)}; "
                "jaxformer did not write it"
            )


class PlainPath:
    """Plain path to a folder, valid until `close`: its own, or a link in a temporary folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._temporary: pathlib.Path | None = None
        self.path = pathlib.Path(os.path.realpath(folder))
        if not PLAIN.fullmatch(str(self.path)):
            self._temporary = _temporary_folder(folder)
            (self._temporary / _LINK).symlink_to(self.path, target_is_directory=True)
            self.path = self._temporary / _LINK

    def close(self) -> None:
        """Removes the link."""
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                (self._temporary / _LINK).unlink()
                self._temporary.rmdir()


def _temporary_folder(folder: pathlib.Path) -> pathlib.Path:
    """Makes a private folder with a plain path, in TMPDIR or a temporary folder of the system."""
    candidates = [os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp", "/dev/shm"]
    plain = [one for one in candidates if os.path.isabs(one) and PLAIN.fullmatch(one)]
    reason = "TMPDIR has other characters, too"
    for parent in plain:
        try:
            return pathlib.Path(tempfile.mkdtemp(prefix="jaxformer-", dir=parent))
        except OSError as error:
            reason = f"{parent}: {error.strerror}"
    raise StorageError(
        f"{folder} has characters other than A-Z, a-z, 0-9, _ . / and -, so checkpoints need a "
        f"link to it in a temporary folder, which cannot be created ({reason}); set TMPDIR to a "
        "writable folder whose path has only these characters"
    )


class OrbaxLog(logging.Filter):
    """Suppresses Orbax's logs of failures, with tracebacks: failures are raised as errors."""

    def __init__(self) -> None:
        super().__init__()
        self.num_open = 0  # open folders of checkpoints; failures are logged if there is none
        logging.getLogger("absl").addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged."""
        of_failure = record.levelno >= logging.WARNING and "orbax" in record.pathname
        return not (of_failure and self.num_open)


orbax_log = OrbaxLog()
