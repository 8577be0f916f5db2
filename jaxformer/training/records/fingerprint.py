"""Fingerprint of what a run trains, so that a run is resumed by the program that began it."""

import functools
import hashlib
import importlib.metadata
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from jaxformer import __version__
from jaxformer.config import LoopConfig
from jaxformer.errors import CheckpointError
from jaxformer.programs import machine
from jaxformer.storage import lexists, read_json, remove, sha256, write_json
from jaxformer.training.checkpoints.open_run import PROGRAM
from jaxformer.training.data import TrainingData, batch_at
from jaxformer.training.parallel import as_on_one_device, is_first_process
from jaxformer.training.step import checked_loss
from jaxformer.training.trial import Recipe, make_trial

_SYMBOL = re.compile(r"@[\w.]+")  # name of a function in a lowered program


def record_program(
    folder: pathlib.Path, fingerprint: Callable[[], dict[str, Any]], *, resumes: bool
) -> list[str]:
    """Compares a program with the record in a run's folder, and records it; returns notes."""
    record = None
    if resumes and lexists(folder / PROGRAM):
        record = read_json(folder / PROGRAM, dict, damaged="{path} is damaged ({error}); remove it")
    try:
        program = fingerprint()
    except Exception:
        # Compiling will report a mistake. Otherwise the loss can be traced only for its devices,
        # such as one with a collective: it cannot be compared, and had no record.
        if record is not None:
            raise
        remove(folder / PROGRAM)
        return []
    notes = [] if record is None else require_same_program(folder, record, program)
    if is_first_process():
        write_json(folder / PROGRAM, program)
    return notes


def program_fingerprint(
    recipe: Recipe, data: TrainingData, loop: LoopConfig, *, num_hosts: int = 1
) -> dict[str, Any]:
    """Versions, settings, batches and a digest of each lowered part of what a recipe trains."""
    # Of one device with whole batches, so that devices, runners and meshes do not change it.
    batch = shapes_of(batch_at(data.batches, 0, 1), num_hosts)
    numbers, frozen, params = recipe.arguments, shapes_of(recipe.frozen), shapes_of(recipe.params)
    make = functools.partial(make_trial, recipe.make)
    parts: dict[str, str] = {}

    def lower(name: str, function: Callable[..., Any], *args: Any) -> Any:
        """Adds a part of the fingerprint; returns the shapes of the results."""
        traced = jax.jit(function).trace(*args)
        symbols: dict[str, str] = {}
        text = _SYMBOL.sub(
            lambda match: symbols.setdefault(match[0], f"@{len(symbols)}"),
            traced.lower(lowering_platforms=(jax.default_backend(),)).as_text(),
        )
        parts[name] = sha256(text)
        return traced.out_info

    def draw(numbers: Mapping[str, Any]) -> Any:
        return make(numbers).init_params(jax.random.key(numbers["seed"]))

    def gradient(params: Any, batch: Any, numbers: Mapping[str, Any], frozen: Any) -> Any:
        trial, rng = make(numbers), jax.random.key(numbers["seed"])
        loss = checked_loss(trial.loss, trial.combine)
        return jax.value_and_grad(loss, has_aux=True)(params, batch, rng, frozen)

    def update(grads: Any, state: Any, params: Any, numbers: Mapping[str, Any]) -> Any:
        return make(numbers).optimizer.update(grads, state, params)

    def validate(params: Any, batch: Any, numbers: Mapping[str, Any], frozen: Any) -> Any:
        trial = make(numbers)
        loss = checked_loss(trial.validation_loss or trial.loss, trial.combine)
        return loss(params, batch, None, frozen)

    with as_on_one_device():
        if params is None:
            params = shapes_of(lower("initializer", draw, numbers))
        lower("loss", gradient, params, batch, numbers, frozen)
        state = jax.eval_shape(lambda numbers: make(numbers).optimizer.init(params), numbers)
        lower("optimizer", update, params, state, params, numbers)
        validation = shapes_of(next(_validation_batches(data), None), num_hosts)
        if validation is not None:
            lower("validation loss", validate, params, validation, numbers, frozen)
    return {
        "versions": _versions(),
        "settings": settings_of(recipe, loop),
        "batch": _text_of(batch),
        "validation batch": _text_of(validation),
        "parts": parts,
    }


def settings_of(recipe: Recipe, loop: LoopConfig) -> dict[str, float]:
    """The numbers of a run that are no part of its programs."""
    average = {} if loop.average_decay is None else {"average_decay": loop.average_decay}
    return {name: float(number) for name, number in recipe.numbers.items()} | average


def require_same_program(
    folder: pathlib.Path, before: Mapping[str, Any], now: Mapping[str, Any]
) -> list[str]:
    """Raises CheckpointError for another program; a note if versions or devices differ."""
    versions = before["versions"]
    reasons = [
        f"{name} was {versions.get(name)}, is {version}"
        for name, version in now["versions"].items()
        if versions.get(name) != version
    ]
    if before["settings"].keys() != now["settings"].keys():  # `fit` in the folder of a sweep
        reasons.append("numbers of a sweep are arguments of its program, those of fit are not")
    if reasons:
        return [f"not checked whether the loss or the optimizer has changed: {', '.join(reasons)}"]
    if changes := list(_changes(before, now)):
        raise CheckpointError(
            f"{folder} was trained with {' and '.join(changes)}; undo the change to resume, choose "
            "another folder, or pass restart=True to remove that run and train anew"
        )
    return []


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What differs between two fingerprints, for a message."""
    for name, value in now["settings"].items():
        if value != before["settings"][name]:
            yield f"another {name} ({before['settings'][name]:g}, now {value:g})"
    if before["batch"] != now["batch"]:
        yield f"other batches ({before['batch']}, now {now['batch']})"
    for name, digest in now["parts"].items():
        batch = {"loss": "batch", "validation loss": "validation batch"}.get(name)
        is_comparable = batch is None or before[batch] == now[batch]
        # Parameters may be drawn in one call and given in another, validation may be added.
        if is_comparable and before["parts"].get(name, digest) != digest:
            yield f"another {name}"


@functools.cache
def _versions() -> dict[str, str]:
    """What may change a lowered program, besides the user's code."""
    # An edited copy of the library counts as another version.
    folder, source = pathlib.Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        source.update(path.read_bytes())
    return {
        "jaxformer": f"{__version__} ({source.hexdigest()[:8]})",
        **{name: importlib.metadata.version(name) for name in ("jax", "flax", "optax")},
        "device": jax.devices()[0].device_kind,
        "machine": machine(),  # last bits of constants that NumPy computes
    }


def _validation_batches(data: TrainingData) -> Iterator[Any]:
    batches: Any = () if data.validation is None else data.validation()
    return iter(next(iter(batches.values())) if isinstance(batches, Mapping) else batches)


def shapes_of(tree: Any, num_hosts: int = 1) -> Any:
    """Shapes of arrays, whose rows are split over hosts."""

    def shape(leaf: Any) -> jax.ShapeDtypeStruct:
        dtype = leaf.dtype if hasattr(leaf, "dtype") else np.result_type(leaf)
        if not jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
            dtype = jax.dtypes.canonicalize_dtype(dtype)
        size = leaf.shape if hasattr(leaf, "shape") else ()
        return jax.ShapeDtypeStruct((size[0] * num_hosts, *size[1:]) if size else size, dtype)

    return jax.tree.map(shape, tree)


def _text_of(shapes: Any) -> str:
    """Shapes of a batch as text."""
    return ", ".join(
        f"{jax.tree_util.keystr(path, simple=True, separator='/')} {leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree.leaves_with_path(shapes)
    )
