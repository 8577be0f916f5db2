"""Single bits that flip in a run folder: found, or harmless, never loaded as something else."""

import collections
import pathlib
import shutil
import warnings

import jax
import numpy as np
import pytest

from jaxformer import runs
from jaxformer.errors import CheckpointWarning, JaxformerError
from tests.runs import tiny
from tests.training import saved


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("flips") / "run"
    return pathlib.Path(shutil.copytree(trained[0] / "run", folder))


def opened(folder, step=None):
    """All that opening a run gives: step, parameters, config, tokenizer, validation text."""
    run = runs.open_run(folder, step)
    tokens = tiny.validation_of(run)[""].tokens.tolist()
    return run.step, run.params, run.config, run.tokenizer.to_json(), tokens


def same(first, second):
    leaves = [jax.tree.leaves(tree) for tree in (first, second)]
    return len(leaves[0]) == len(leaves[1]) and all(
        np.array_equal(a, b) if hasattr(a, "shape") else a == b
        for a, b in zip(*leaves, strict=True)
    )


def outcome(folder, expected):
    """What came of opening a run: "found", "passed over", "harmless", or "silent"."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            step, *values = opened(folder)
        except JaxformerError:
            return "found"
    messages = [warning for warning in caught if issubclass(warning.category, CheckpointWarning)]
    if not same(values, expected[step]):
        return "silent"
    return "harmless" if step == max(expected) and not messages else "passed over"


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_flipped_bits_are_found_or_harmless(run, count):
    """Of files by their sizes."""
    rng = np.random.default_rng(0)
    expected = {step: list(opened(run, step)[1:]) for step in (10, 20)}
    files = sorted(path for path in run.rglob("*") if path.is_file())
    sizes = np.array([path.stat().st_size for path in files], np.float64)
    outcomes = collections.Counter()
    for _ in range(count):
        path = files[rng.choice(len(files), p=sizes / sizes.sum())]
        before = path.read_bytes()
        saved.flip(path, int(rng.integers(len(before) * 8)))
        result = outcome(run, expected)
        path.write_bytes(before)
        assert result != "silent", path
        outcomes[result] += 1
    assert outcomes["found"] + outcomes["passed over"] > count / 4, outcomes
