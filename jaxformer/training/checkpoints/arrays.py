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

_UNREADABLE = "[]\\"  # Orbax takes brackets for a pattern
_UNREADABLE_IN_BUCKETS = ";#?"  # by TensorStore


def require_readable(folder: pathlib.Path) -> None:
    """Raises ConfigError for a folder whose path Orbax could write to, but not read."""
    path = str(folder) if in_bucket(folder) else pathlib.Path(os.path.abspath(folder)).as_posix()
    characters = _UNREADABLE + (_UNREADABLE_IN_BUCKETS if in_bucket(folder) else "")
    wrong = [sign for sign in path if sign in characters or "\ud800" <= sign <= "\udfff"]
    if wrong:
        raise ConfigError(
            f"the path of a run must be UTF-8 without {' '.join(characters)}, which Orbax cannot "
            f"read, got {wrong[0]!a} in {path!a}; choose another folder"
        )


def load_arrays(folder: pathlib.Path, templates: dict[str, Any]) -> Any:
    """Loads items of a checkpoint by name, into shapes, dtypes and shardings of the templates."""
    stored = ocp.checkpointables_metadata(folder).metadata
    for name, template in templates.items():
        _check_same_shapes(f"{folder}, {name}", stored[name], template)
    with _context(templates):
        return ocp.load_checkpointables(folder, jax.tree.map(_abstract, templates))


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


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def _check_same_shapes(where: str, stored: Any, template: Any) -> None:
    """Compares shapes and dtypes, because Orbax would cast and reshape silently."""
    old, new = _leaves(stored), _leaves(template)
    for name in sorted(old.keys() | new.keys()):
        before, after = (_described(leaves.get(name)) for leaves in (old, new))
        if before != after:
            raise CheckpointError(
                f"{where}: {name} is {before or 'missing'}, the model expects "
                f"{after or 'nothing'}; it belongs to another configuration"
            )


def _leaves(tree: Any) -> dict[str, Any]:
    """Leaves of a pytree by path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _described(leaf: Any) -> tuple[tuple[int, ...], str] | None:
    return None if leaf is None else (tuple(leaf.shape), str(leaf.dtype))
