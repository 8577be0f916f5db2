"""Plans whose training step is compiled, here by the compiler of the CPU."""

import dataclasses

import jax
import pytest

from jaxformer.config import MeshConfig
from jaxformer.functional.attention import program
from jaxformer.functional.attention.dense import dense_attention
from jaxformer.planning import ACCELERATORS
from jaxformer.planning.plan import Place, _plan
from tests.planning.test_plan import config
from tests.small_config import model


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
    traffic = sum(op.traffic for op in step.collectives)
    assert plan.seconds["interconnect"] == pytest.approx(traffic / ACCELERATORS["v5e"].interconnect)
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
    assert plan.seconds.keys() == {"compute", "memory"}  # as for a GPU, which is not compiled for
