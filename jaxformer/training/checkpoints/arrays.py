"""Arrays of a checkpoint: loaded with Orbax, after their shapes and dtypes were compared."""

import contextlib
import os
import pathlib
from contextlib import AbstractContextManager
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.storage import in_bucket
from jaxformer.training.parallel import num_processes, this_process
from jaxformer.training.state import TrainState

_UNREADABLE = "[]\\"  # Orbax takes brackets for a pattern
_UNREADABLE_IN_BUCKETS = ";#?"  # by TensorStore


def require_readable(folder: pathlib.Path) -> None:
    """Raises ConfigError for a folder whose path Orbax cannot write to and read."""
    if in_bucket(folder) and not str(folder).startswith("gs://"):
        raise ConfigError(
            f"a run folder must be on a disk or in a bucket gs://, got {folder}; Orbax saves "
            "checkpoints in no other kind of bucket"
        )
    path = str(folder) if in_bucket(folder) else pathlib.Path(os.path.abspath(folder)).as_posix()
    characters = _UNREADABLE + (_UNREADABLE_IN_BUCKETS if in_bucket(folder) else "")
    wrong = [sign for sign in path if sign in characters or "\ud800" <= sign <= "\udfff"]
    if wrong:
        raise ConfigError(
            f"the path of a run must be UTF-8 without {' '.join(characters)}, which Orbax cannot "
            f"read, got {wrong[0]!a} in {path!a}; choose another folder"
        )


def items_of(state: TrainState) -> dict[str, Any]:
    """Items of a checkpoint, each of which Orbax can load separately."""
    items = state._asdict()
    meta = {name: items.pop(name) for name in ("step", "bad_step")}
    return {"meta": meta} | {name: item for name, item in items.items() if item is not None}


def load_arrays(folder: pathlib.Path, templates: dict[str, Any]) -> Any:
    """Loads items of a checkpoint by name, into shapes, dtypes and shardings of the templates."""
    stored = ocp.checkpointables_metadata(folder).metadata
    for name, template in templates.items():
        # Orbax would cast and reshape silently.
        before, after = _described(stored.get(name)), _described(template)
        for path in sorted(before.keys() | after.keys()):
            if before.get(path) != after.get(path):
                raise CheckpointError(
                    f"{folder}, {name}: {path} is {before.get(path, 'missing')}, the model expects "
                    f"{after.get(path, 'nothing')}; it belongs to another configuration"
                )
    abstract = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), templates
    )
    with _context(templates):
        return ocp.load_checkpointables(folder, abstract)


def _context(templates: Any) -> AbstractContextManager[Any]:
    """Orbax context in which a process loads its own arrays without waiting for the others."""
    shardings = [leaf.sharding for leaf in jax.tree.leaves(templates)]
    if num_processes() == 1 or not all(sharding.is_fully_addressable for sharding in shardings):
        return contextlib.nullcontext()
    process = this_process()
    return ocp.Context(
        multiprocessing_options=ocp.options.MultiprocessingOptions(
            primary_host=process,
            active_processes={process},
            barrier_sync_key_prefix=f"process_{process}",
        )
    )


def _described(tree: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of the leaves of a pytree, by path."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): (tuple(x.shape), str(x.dtype))
        for path, x in jax.tree_util.tree_leaves_with_path(tree)
    }
