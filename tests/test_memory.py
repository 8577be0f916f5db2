"""How much memory there is, what is refused for lack of it, and whether freed memory is kept."""

import os
import platform
import subprocess
import sys

import jax
import numpy as np
import pytest

from jaxformer import __main__ as program
from jaxformer import cli, memory
from jaxformer.errors import ConfigError
from jaxformer.modules import Block
from jaxformer.runs import task_class
from jaxformer.runs.weights.shapes import param_shapes, require_training_memory
from jaxformer.training import SingleRunner
from jaxformer.training.parallel import PmapRunner
from tests.runs import tiny

# Four threads, which all stay alive, fill and free 96 MiB in turn. Prints how many of them stay
# resident, and for how many the system provided pages. Where memory is kept, all threads share
# one heap, so that the others fill what the first has filled.
MEASURE = """
import pathlib, resource, sys, threading

def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt * resource.getpagesize()

def measure():
    done = threading.Event()

    def fill(filled):
        len(b"x" * (96 << 20))
        filled.set()
        done.wait()

    before = resident(), faults()
    for _ in range(4):
        filled = threading.Event()
        threading.Thread(target=fill, args=[filled]).start()
        filled.wait()
    print(resident() - before[0] >> 20, faults() - before[1] >> 20)
    done.set()
"""


class Device:
    def __init__(self, platform, stats):
        self.platform, self.stats = platform, stats

    def memory_stats(self):
        return self.stats


@pytest.fixture
def task(tmp_path, monkeypatch):
    """A classifier before its first step; nothing is compiled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rows = ["a b\tx", "b c\ty", "c d\tx", "e f\ty"] * 3
    text, held_out = (tiny.write(tmp_path / name, rows) for name in ("a.tsv", "b.tsv"))
    data = {"source": "labelled", "paths": (text,), "validation_paths": (held_out,)}
    return tiny.prepare(tiny.config(tmp_path, architecture="encoder", data=data))


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_limit_of_a_container_holds(tmp_path, monkeypatch, file):
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    whole = memory.host_memory()
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("1048576\n")
    assert memory.host_memory() == 2**20
    (tmp_path / file).write_text("max\n")
    assert memory.host_memory() == whole


def test_memory_of_a_device_is_its_own_where_it_says_so(monkeypatch):
    monkeypatch.setattr(memory, "host_memory", lambda: 7)
    assert memory.device_memory(Device("gpu", {"bytes_limit": 5})) == 5
    assert memory.device_memory(Device("gpu", None)) == 7
    assert memory.device_memory(Device("gpu", {})) == 7
    assert memory.device_memory(Device("cpu", {"bytes_limit": 5})) == 7


def test_virtual_devices_share_the_memory_of_the_host(monkeypatch):
    monkeypatch.setattr(memory, "host_memory", lambda: 1000)
    assert SingleRunner().memory == 1000
    assert PmapRunner(jax.local_devices()[:4]).memory == 250


def test_parameters_have_the_shapes_that_they_are_drawn_with(task):
    for execution in ("loop", "scan"):
        config = tiny.change(task.config, model={"layer_execution": execution, "num_layers": 3})
        other = task.with_config(config).model
        shapes, drawn = param_shapes(other), jax.eval_shape(other.initializer, jax.random.key(0))
        assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), shapes) == jax.tree.map(
            lambda leaf: (leaf.shape, leaf.dtype), drawn
        )


def test_state_of_training_must_fit_the_memory_to_the_byte(task, monkeypatch):
    """Parameters, gradients and two moments of Adam, and its count."""
    params = sum(np.prod(leaf.shape) * 4 for leaf in jax.tree.leaves(param_shapes(task.model)))
    # Adam counts its steps, so does the schedule of the learning rate, and the state has two
    # numbers of its own.
    total = int(4 * params + 4 + 4 + 2 * 4)
    monkeypatch.setattr(memory, "host_memory", lambda: total)
    require_training_memory(task.model, SingleRunner())
    monkeypatch.setattr(memory, "host_memory", lambda: total - 1)
    with pytest.raises(ConfigError, match="needs at least .*parameters .*optimizer .*, got"):
        require_training_memory(task.model, SingleRunner())
    with pytest.raises(ConfigError, match="on each of 2 devices"):
        require_training_memory(task.model, PmapRunner(jax.local_devices()[:2]))


def test_deep_model_is_estimated_as_fast_as_a_flat_one(task, monkeypatch):
    """A loop over 10,000 layers would be traced for minutes."""
    call, traced = Block.__call__, []

    def counted(block, *args, **options):
        traced.append(block)
        assert len(traced) < 99, "each layer is traced"
        return call(block, *args, **options)

    monkeypatch.setattr(Block, "__call__", counted)
    counts = []
    for depth in (2, 10_000):
        traced.clear()
        model = {"layer_execution": "loop", "num_layers": depth}
        model_of_depth = task.with_config(tiny.change(task.config, model=model)).model
        assert any(leaf.shape[0] == depth for leaf in jax.tree.leaves(param_shapes(model_of_depth)))
        counts.append(len(traced))
    assert counts[0] == counts[1] > 0


def test_vocabulary_of_a_run_cannot_be_smaller_than_its_tokenizer(task, tmp_path):
    folder = tmp_path / "saved"
    folder.mkdir()
    task.save(folder)
    (folder / "data.json").write_text('{"shapes": []}')
    kind = task_class(task.config).text_model
    assert kind.load(folder, task.config).config == task.config
    lie = tiny.change(task.config, model={"vocab_size": 3})
    with pytest.raises(ConfigError, match="vocab_size must be at least the tokenizer's"):
        kind.load(folder, lie)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (3 * 2**29, "1.5 GiB")]
)
def test_bytes_are_written_in_the_largest_unit_that_fits(size, text):
    assert memory.readable_bytes(size) == text


def is_kept(script, **environment):
    """Whether memory is kept after a script's call of `measure`; asserts that it is all or none."""
    prefixes = ("MALLOC_", "GLIBC_TUNABLES", "JAX_PLATFORMS")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE + script], env=inherited | environment,
        text=True, capture_output=True, check=True,
    )  # fmt: skip
    resident, provided = map(int, done.stdout.split())
    if resident < 20:
        return False
    assert 90 <= resident < 120 and provided < 120  # not 4 * 96
    return True


needs_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="only glibc's allocator has these settings"
)


@needs_glibc
@pytest.mark.parametrize("environment, expected", [
    ({"JAX_PLATFORMS": "cpu"}, True),
    ({"JAX_PLATFORMS": "cuda"}, False),
    ({"JAX_PLATFORMS": "cpu", "MALLOC_ARENA_MAX": "8"}, False),
    ({"JAX_PLATFORMS": "cpu", "MALLOC_TRIM_THRESHOLD_": "131072"}, False),
    ({"JAX_PLATFORMS": "cpu", "GLIBC_TUNABLES": "glibc.malloc.arena_max=8"}, False),
])  # fmt: skip
def test_freed_memory_is_kept_only_where_it_helps(environment, expected):
    script = "from jaxformer.memory import keep_freed_memory\nkeep_freed_memory()\nmeasure()"
    assert is_kept(script, **environment) == expected


@pytest.mark.parametrize(
    "command, expected", [("train", ["keep"]), ("sweep", ["keep"]), ("generate", [])]
)
def test_commands_that_train_keep_freed_memory(monkeypatch, command, expected):
    called = []
    monkeypatch.setattr(memory, "keep_freed_memory", lambda: called.append("keep"))
    monkeypatch.setattr(cli, "main", lambda: called.append("main"))
    monkeypatch.setattr(sys, "argv", ["jaxformer", command])
    program.main()
    assert called == [*expected, "main"]  # kept before threads start
