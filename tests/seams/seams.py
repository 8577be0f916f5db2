"""What a run reads, starts from, writes and prints, before its first step: seen from outside.

A run is started by the command line, and stopped where `fit` would take its first step. What it
printed, the files of its folder, and digests of what it gave to `fit` are compared with
golden.json. A digest says only that something changed, so each part has its own.
"""

import contextlib
import hashlib
import io
import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import numpy as np

from jaxformer.cli import main
from jaxformer.config import ExperimentConfig, config_to_toml
from jaxformer.runs import train
from jaxformer.text import Host
from jaxformer.text.corpora import encoding
from jaxformer.training import SingleRunner
from jaxformer.training.trial import make_trial

GOLDEN = pathlib.Path(__file__).with_name("golden.json")
BATCHES = 40  # more than an epoch of all but the phrasebook


class StartedError(BaseException):
    """Carries the arguments of `fit`."""


@contextlib.contextmanager
def small_memory() -> Iterator[None]:
    """All data is prepared in parts of a few rows."""
    with mock.patch.object(encoding, "_GROUP", 400):
        yield


@contextlib.contextmanager
def second_of_two_hosts() -> Iterator[None]:
    """A run takes the rows of the second host of two."""
    hosts = {"host": Host(1, 2), "num_shards": 2}
    with mock.patch.multiple(SingleRunner, **hosts):
        yield


def digest(tree: Any) -> str:
    """A digest of the paths, dtypes, shapes and bytes of arrays."""
    hasher = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.asarray(leaf)
        name = f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}"
        hasher.update(name.encode() + array.tobytes())
    return hasher.hexdigest()[:12]


def start(config: ExperimentConfig, *flags: str, known: Any = ()) -> dict[str, Any]:
    """Starts a run in the current folder; returns what was printed, written and given to `fit`.

    With --init-from among the flags, model and tokenizer are left to what it names, whose
    parameters are known.
    """
    toml = config_to_toml(config)
    if "--init-from" in flags:
        toml = re.sub(r"(?ms)^\[(model|tokenizer)[.\]].*?(?=^\[|\Z)", "", toml)
    path, run = pathlib.Path("seam.toml"), pathlib.Path(str(config.out))
    path.write_text(toml, encoding="utf-8")
    printed = io.StringIO()

    def stop(*arguments: Any, **options: Any) -> None:
        raise StartedError(arguments, options)

    try:
        with (
            mock.patch.object(train, "fit_run", stop),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            main(["train", str(path), *flags])
    except SystemExit as error:
        raise AssertionError(printed.getvalue()) from error
    except StartedError as error:
        (spec, *_), _ = error.args
        recipe, data = spec.recipe, spec.data
        trial = make_trial(recipe.make, recipe.numbers)
    lines = re.sub(r"\b[0-9a-f]{32}\b", "KEY", printed.getvalue()).splitlines()
    return {
        "printed": lines,
        "files": sorted(str(entry.relative_to(run)) for entry in run.rglob("*")),
        "config": hashlib.sha256((run / "config.toml").read_bytes()).hexdigest()[:12],
        "first batches": [digest(data.batches[step]) for step in range(3)],
        "batches": digest([data.batches[step] for step in range(BATCHES)]),
        "validation": {name: digest(list(part)) for name, part in _validation(data)},
        "validation bytes": data.validation_bytes,
        "parameters": _parameters(recipe.params or trial.init_params, known),
        "frozen": _parameters(recipe.frozen, known),
    }


def _validation(data: Any) -> Iterator[tuple[str, Any]]:
    parts = data.validation()
    yield from parts.items() if isinstance(parts, dict) else [("all", parts)]


def _parameters(params: Any, known: Any) -> str:
    """A digest of names, dtypes and shapes, and how many of the arrays are known ones.

    Values themselves are not recorded: drawn ones differ in the last bit from machine to machine.
    """
    values = {np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(known)}
    if callable(params):
        params = jax.eval_shape(params, jax.random.key(0))
    leaves = jax.tree_util.tree_leaves_with_path(params)
    lines = [f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape}" for path, leaf in leaves]
    stored = sum(bool(values) and np.asarray(leaf).tobytes() in values for _, leaf in leaves)
    named = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
    return f"{named}, {len(leaves)} arrays, {stored} as stored"


def golden() -> dict[str, Any]:
    """What was recorded, by the name of a case."""
    records: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return records
