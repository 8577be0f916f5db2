"""The compiler on the real training step: of the CPU here, and of a TPU that need not be there."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import jax
import pytest

from jaxformer.config import MeshConfig
from jaxformer.functional.attention import program
from jaxformer.functional.attention.dense import dense_attention
from jaxformer.planning import ACCELERATORS
from jaxformer.planning.plan import Place, _plan
from tests.planning.test_plan import config
from tests.small_config import model

ROOT = pathlib.Path(__file__).parents[2]
TINY = """
[data]
source = "files"
[tokenizer]
kind = "byte"
[model]
max_len = 64
num_layers = 3
d_model = 128
num_heads = 4
dtype = "bfloat16"
[optimizer]
learning_rate = 1e-3
[training]
steps = 10
batch_size = 16
accumulate_steps = 2
[mesh]
fsdp = 2
"""
PROGRAM = """
import json, sys
import jax
jax.config.update("jax_platforms", "cpu")
from jaxformer.config import load_config
from jaxformer.planning import ACCELERATORS, make_plan
plan = make_plan(load_config(sys.argv[1]), ACCELERATORS["v5e"], topology="2x2")
print(json.dumps({
    "fits": plan.fits, "sizes": plan.sizes, "temporaries": plan.compiled.temporaries,
    "arguments": plan.compiled.arguments, "needs": plan.needs, "collectives": plan.collectives,
}))
"""


@pytest.mark.parametrize("implementation", ["auto", "splash"])
def test_attention_is_compiled_as_on_the_accelerator(implementation, monkeypatch):
    """But FLOPs are those of attention whose products can be counted."""
    taken = []

    def note(inputs):
        taken.append(inputs)
        return dense_attention(inputs)

    monkeypatch.setitem(program._FUNCTIONS, "splash", note)
    monkeypatch.setattr(program, "_MIN_SPLASH_WEIGHTS", 0)
    long = model(max_len=128, vocab_size=22, attention_implementation=implementation)
    one_device = Place(ACCELERATORS["v5e"], 1, jax.devices()[:1])
    plan = _plan(dataclasses.replace(config(), model=long), one_device)
    assert taken and plan.compiled.failure is None
    taken.clear()
    chunked = dataclasses.replace(long, attention_implementation="chunked")
    expected = _plan(dataclasses.replace(config(), model=chunked), one_device).flops
    assert not taken
    assert plan.flops == expected
    # On a mesh, every device runs the kernel for its own rows and heads.
    even = dataclasses.replace(long, d_model=32, num_heads=4, num_kv_heads=2)
    split = dataclasses.replace(config(mesh=MeshConfig(fsdp=2, tensor=2)), model=even)
    plan = _plan(split, Place(ACCELERATORS["v5e"], 8, jax.devices()))
    shapes = {(inputs.query.shape, inputs.key.shape) for inputs in taken}
    assert ((plan.rows // 4, 128, 2, 8), (plan.rows // 4, 128, 1, 8)) in shapes
    assert ((plan.rows, 128, 4, 8), (plan.rows, 128, 2, 8)) not in shapes


def test_plan_of_devices_has_the_memory_and_collectives_of_their_program():
    plan = _plan(config(), Place(ACCELERATORS["v5e"], 2, jax.devices()[:2]))
    step, state = plan.compiled, plan.needs.parameters + plan.needs.optimizer
    assert plan.fits and step.failure is None
    assert 1 <= step.arguments / state < 1.1  # the batch is an argument, too
    assert step.total >= step.arguments + step.temporaries > state
    assert step.temporaries >= plan.needs.gradients
    assert plan.collectives == step.collectives
    assert {(op.kind, op.group) for op in step.collectives} == {("all-reduce", 2)}
    assert sum(op.num_bytes for op in step.collectives) >= plan.needs.gradients
    assert plan.traffic > 2 * state and "ENTRY" in step.text


def test_what_does_not_fit_is_said_without_the_list_of_buffers(monkeypatch):
    said = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.07G of 15.75G hbm."

    def compile_step(self):
        raise RuntimeError(f"{said}\n\nTotal hbm usage >= 17.09G:\n")

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile_step)
    plan = _plan(config(), Place(ACCELERATORS["v5e"], 2, jax.devices()[:2]))
    assert plan.compiled.failure == said and not plan.fits
    assert plan.collectives  # as for a GPU, which is not compiled for


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_step_is_compiled_for_a_tpu_that_is_not_there(tmp_path):
    # In a process of its own, since libtpu reads its environment when it is loaded.
    path = tmp_path / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, path], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": ""},
    )  # fmt: skip
    plan = json.loads(done.stdout.splitlines()[-1])
    parameters, _, optimizer, *_ = plan["needs"]
    assert plan["fits"]
    assert plan["sizes"] == dict.fromkeys(plan["sizes"], 1) | {"data": 2, "fsdp": 2}
    # Arrays are padded to tiles, and the batch is an argument, too.
    assert 1 <= plan["arguments"] / (parameters + optimizer) < 1.1
    assert plan["temporaries"] > parameters  # the gradients
    gathers = [times for kind, _, times, *_ in plan["collectives"] if kind == "all-gather"]
    # Six kernels of three layers, in both passes of both micro-batches, at least.
    assert sum(gathers) >= 6 * 3 * 2 * 2
    assert any(kind == "all-reduce" for kind, *_ in plan["collectives"])
