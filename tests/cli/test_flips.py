"""A bit that flips in a file of a run folder is found, or harmless: never loaded as another."""

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
    """Step of a run, and all else that opening it gives: parameters, config, tokenizer, text."""
    run = runs.open_run(folder, step)
    tokens = tiny.validation_of(run)[""].tokens.tolist()
    return run.step, (run.params, run.config, run.tokenizer.to_json(), tokens)


def same(first, second):
    leaves = [jax.tree.leaves(tree) for tree in (first, second)]
    return len(leaves[0]) == len(leaves[1]) and all(map(np.array_equal, *leaves))


@pytest.mark.parametrize("flips", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_flipped_bits_are_found_or_harmless(run, flips):
    """In each file; a damaged checkpoint is passed over for an older one."""
    expected, count = {step: opened(run, step)[1] for step in (10, 20)}, 0
    files = sorted(path for path in run.rglob("*") if path.stat().st_size and path.is_file())
    bits = np.random.default_rng(0)
    for path in files * flips:
        before = path.read_bytes()
        saved.flip(path, int(bits.integers(8 * len(before))))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CheckpointWarning)
            try:
                step, values = opened(run)
            except JaxformerError:
                count += 1
            else:
                assert same(values, expected[step]), path
                count += step != max(expected)
        path.write_bytes(before)
    assert count > flips * len(files) / 4
    print(f"{flips * len(files)} flips, {count} found")
