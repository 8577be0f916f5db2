"""Single bits that flip in a run folder: found, or harmless, never loaded as something else."""

import collections
import pathlib
import shutil
import warnings

import jax
import numpy as np
import pytest

from jaxformer import errors, runs
from jaxformer.errors import CheckpointWarning
from jaxformer.training import Checkpoints, SingleRunner, TrainState, make_optimizer
from tests.runs import tiny
from tests.training import saved

KINDS = tuple(
    kind for name in errors.__all__ if issubclass(kind := getattr(errors, name), ValueError)
)


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("flips") / "run"
    return pathlib.Path(shutil.copytree(trained[0] / "run", folder))


def opened(folder, step=None):
    """All that opening a run gives: step, parameters, config, tokenizer, validation text."""
    run = runs.open_run(folder, step)
    validation = tiny.validation_of(run)[""]
    return (
        run.step,
        run.params,
        run.config,
        run.tokenizer.to_json(),
        validation.tokens.tolist(),
    )


def resumed(folder, template):
    """All that training goes on from."""
    with Checkpoints(folder / "checkpoints", read_only=True) as checkpoints:
        step = checkpoints.step_to_resume(20)
        return step, checkpoints.restore(template)


def same(first, second):
    leaves = [jax.tree.leaves(tree) for tree in (first, second)]
    return len(leaves[0]) == len(leaves[1]) and all(
        np.array_equal(a, b) if hasattr(a, "shape") else a == b
        for a, b in zip(*leaves, strict=True)
    )


def outcome(read, expected):
    """What came of reading: "found", "passed over", "harmless", or "silent"."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            step, *values = read()
        except KINDS:
            return "found"
    messages = [warning for warning in caught if issubclass(warning.category, CheckpointWarning)]
    newest = step == max(expected)
    if not same(values, expected[step]):
        return "silent"
    return "harmless" if newest and not messages else "passed over"


def flip_bits(run, count, seed, *, by_turns=False):
    """Flips single bits, of files by their sizes, and counts what comes of each.

    Each is read both as a run is opened and as it is resumed, or in one of the ways by turns.
    """
    rng = np.random.default_rng(seed)
    params = runs.open_run(run).params
    config = runs.read_run_config(run)
    optimizer = make_optimizer(config.optimizer, config.schedule)
    template = SingleRunner().place(jax.jit(lambda p: TrainState.create(p, optimizer))(params))
    to_open = {step: opened(run, step)[1:] for step in (10, 20)}
    to_resume = {20: resumed(run, template)[1:]}
    hidden = run / "checkpoints" / "20"
    hidden.rename(run / "20")
    to_resume[10] = resumed(run, template)[1:]
    (run / "20").rename(hidden)

    files = sorted(path for path in run.rglob("*") if path.is_file())
    sizes = np.array([path.stat().st_size for path in files], np.float64)
    outcomes = collections.Counter()
    for turn in range(count):
        path = files[rng.choice(len(files), p=sizes / sizes.sum())]
        before = path.read_bytes()
        saved.flip(path, int(rng.integers(len(before) * 8)))
        ways = [(lambda: opened(run), to_open), (lambda: resumed(run, template), to_resume)]
        ways = [ways[turn % 2]] if by_turns else ways
        results = [outcome(read, expected) for read, expected in ways]
        path.write_bytes(before)
        assert "silent" not in results, (path, results)
        outcomes.update(results)
    return outcomes


def test_flipped_bits_are_found_or_harmless(run):
    outcomes = flip_bits(run, 20, seed=0, by_turns=True)
    assert outcomes["found"] + outcomes["passed over"] > 5, outcomes


@pytest.mark.slow
def test_a_thousand_flipped_bits_are_found_or_harmless(run):
    print(flip_bits(run, 1000, seed=1))
