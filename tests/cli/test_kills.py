"""A run that is killed at any moment goes on by the same command, and ends bit for bit the same."""

import functools
import json
import random

import jax
import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp

from tests.cli.commands import TEXT
from tests.cli.forks import Forks
from tests.records import without_meters
from tests.training import saved

COMMON = """
out = "{out}"
[model]
{model}
num_layers = 1
d_model = 16
num_heads = 2
dropout_rate = 0.1
[optimizer]
learning_rate = 3e-2
[training]
steps = 24
cpu_devices = 2
accumulate_steps = 2
log_every = 1
eval_every = 6
checkpoint_every = 4
{training}
[samples]
prompts = ["{prompt}"]
"""

STREAM = """
[data]
source = "files"
paths = ["{data}"]
validation_fraction = 0.2
[tokenizer]
kind = "character"
"""

PAIRS = """
[data]
source = "pairs"
paths = ["{data}"]
num_buckets = 2
validation_fraction = 0.2
[tokenizer]
kind = "word"
"""


def decoder(folder):
    """An epoch has 6 steps, so that some checkpoints are at the end of one, and some in it."""
    data = folder / "text.txt"
    data.write_text(TEXT, encoding="utf-8")
    common = COMMON.replace("{model}", "max_len = 32").replace("{training}", "batch_size = 8")
    return common.replace("{prompt}", "the c") + STREAM.replace("{data}", str(data))


def encoder_decoder(folder):
    """Pairs of unequal length, in batches of two shapes."""
    words = "one two three four five six seven".split()
    rows = [
        "{}\t{}".format(
            *(" ".join(words[(i + j) % 7] for j in range(1 + i % 9)) for i in (k, k + 1))
        )
        for k in range(60)
    ]
    data = folder / "pairs.tsv"
    data.write_text("\n".join(rows) + "\n", encoding="utf-8")
    common = COMMON.replace("{model}", 'architecture = "encoder_decoder"\nmax_len = 12')
    common = common.replace("{training}", "batch_tokens = 96").replace("{prompt}", "one two")
    return common + PAIRS.replace("{data}", str(data))


KINDS = {"decoder": decoder, "encoder_decoder": encoder_decoder}


class Case:
    """A config, and what an uninterrupted run of it comes to."""

    def __init__(self, kind, folder, forks):
        self.folder, self.forks, self.log = folder, forks, folder / "log"
        text = KINDS[kind](folder).replace("{out}", str(folder / "unused"))
        self.config = folder / "tiny.toml"
        self.config.write_text(text, encoding="utf-8")
        self.run(folder / "whole")
        self.expected = contents(folder / "whole")

    @functools.cached_property
    def seconds(self):
        """How long a run takes whose programs are in the compilation cache."""
        return self.run(self.folder / "again")

    def run(self, out, killed_by=-9, report=False, **how):
        """Runs the command to its end, or until it is killed; None then."""
        self.log.unlink(missing_ok=True)
        status, seconds = self.forks.run(
            "train", self.config, "--out", out, log=self.log, report=report, **how
        )
        assert status in (0, killed_by), self.log.read_text(encoding="utf-8")[-3000:]
        return seconds if status == 0 else None

    def check(self, out):
        """The run is bit for bit the uninterrupted one; a kill may leave one more checkpoint."""
        result = contents(out, self.expected["steps"])
        assert result.keys() == self.expected.keys()
        for name, value in self.expected.items():
            assert same(result[name], value), name


def same(first, second):
    if jax.tree.structure(first) != jax.tree.structure(second):
        return False
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(a, b) and type(a) is type(b) for a, b in pairs)


def load(checkpointer, step):
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    stored = checkpointer.checkpointables_metadata(step).metadata
    trees = {name: stored[name] for name in ("params", "opt_state", "meta")}
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), trees
    )
    return checkpointer.load_checkpointables(step, shapes)


def contents(out, steps=None):
    """All that a run has come to, at some steps or all, but for how fast, and when."""
    checkpoints = out / "checkpoints"
    stored = sorted(int(path.name) for path in checkpoints.iterdir() if path.name.isdigit())
    steps = stored if steps is None else [step for step in stored if step in steps]
    with ocp.training.Checkpointer(checkpoints) as checkpointer:
        states = {step: load(checkpointer, step) for step in steps}
    losses = [(step, saved.loss_of(checkpoints / str(step))) for step in steps]
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    metrics = without_meters(records)
    names = {path.name for path in out.iterdir()} - {"lock", "tensorboard"}  # not in a bucket
    files = {
        name: (out / name).read_bytes().decode()
        for name in names
        if name.endswith((".json", ".txt")) and "manifest" not in name
    }
    return {
        "names": sorted(names),
        "beside": [path.name for path in out.parent.iterdir() if path.name.startswith(".")],
        "steps": steps,
        "unfinished": [path.name for path in checkpoints.iterdir() if not path.name.isdigit()],
        "states": jax.tree.map(np.asarray, states),
        "losses": losses,
        "metrics": metrics,
        "files": files,
    }


@pytest.fixture(scope="module")
def forks():
    with Forks() as forks:
        yield forks


@pytest.fixture(scope="module")
def cases(tmp_path_factory, forks):
    cases = {}

    def case(kind):
        if kind not in cases:
            cases[kind] = Case(kind, tmp_path_factory.mktemp(kind), forks)
        return cases[kind]

    return case


def kill_until_done(case, out, seed, kills):
    """Kills a run at random times until it has finished; returns how often."""
    chance, count = random.Random(seed), 0
    while count < kills:
        if case.run(out, kill_after=chance.uniform(0.05, 0.9) * case.seconds) is not None:
            break
        count += 1
    else:
        case.run(out)
    case.check(out)
    return count


def test_run_stopped_again_and_again_ends_as_one_that_was_not(cases, tmp_path):
    """Killed while its folder is made, by a signal while it compiles, and while it saves."""
    case, out = cases("decoder"), tmp_path / "run"
    assert case.run(out, moment="folder_is_made", index=1) is None
    assert case.run(out, killed_by=143, moment="signal_in_compilation", index=6) is None
    assert case.log.read_text(encoding="utf-8").splitlines()[-1] == (
        f"jaxformer: stopped by SIGTERM at step 7, saved in {out}; repeat the command to resume"
    )
    assert case.run(out, moment="checkpoint_is_committed", index=1) is None
    assert case.run(out) is not None
    case.check(out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_25_random_kills(cases, tmp_path, kind):
    case, total, seed = cases(kind), 0, 0
    while total < 25:
        total += kill_until_done(case, tmp_path / f"run{seed}", seed, kills=25 - total)
        seed += 1
    print(f"{kind}: {total} kills in {seed} runs")
