import concurrent.futures
import contextlib
import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.config import MeshConfig
from jaxformer.errors import ConfigError
from jaxformer.training import (
    MeshRunner,
    PmapRunner,
    SingleRunner,
    make_eval_step,
    make_runner,
    split_cpu,
)
from jaxformer.training.parallel import TogetherRunner


def test_default_runner_takes_every_device():
    runner = make_runner("pmap", devices=None, batch_size=16, accumulate_steps=2)
    assert isinstance(runner, PmapRunner) and runner.num_devices == 8
    assert make_runner("pmap", devices=3, batch_size=6, accumulate_steps=2).num_devices == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": 9, "batch_size": 9}, "training.devices=9, but this machine has 8"),
        ({"batch_size": 12}, r"= 8 \* 1, got 12"),
        ({"mesh": MeshConfig(fsdp=3)}, r"data=2 \* fsdp=3 .* = 6 of 8 devices"),
        ({"mesh": MeshConfig(data=4, fsdp=4)}, "= 16 of 8 devices"),
        ({"mesh": MeshConfig(fsdp=4), "batch_size": 12},
         r"devices \* accumulate_steps = 8 \* 1, got 12, .* \(mesh.data \* mesh.fsdp"),
    ],
)  # fmt: skip
def test_impossible_layouts_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        make_runner(**options)


def test_cpu_cannot_be_split_after_jax_has_started():
    jax.devices()
    split_cpu(8)  # as it is
    with pytest.raises(ConfigError, match="cpu_devices=3 must be set before JAX starts"):
        split_cpu(3)


@pytest.mark.parametrize(
    "runner", [SingleRunner(), PmapRunner(), MeshRunner()], ids=["single", "pmap", "mesh"]
)
def test_placed_state_is_a_copy(runner):
    """Steps give up the state they are passed, which must not be the caller's array."""
    original = jnp.arange(8.0)
    step = runner.compile_train(lambda state, batch: (state + 1, batch.sum()))
    for state in (runner.place(original), runner.create(lambda x: x, (original,))):
        step(state, np.zeros(8))
        assert original.tolist() == list(range(8))


def test_evaluation_sums_over_devices():
    def loss(params, batch, rng):
        assert rng is None
        return (params * batch["x"]).sum(), jnp.float32(batch["x"].shape[0])

    batch = {"x": np.arange(8.0, dtype=np.float32)}
    for runner in (SingleRunner(), PmapRunner()):
        step = runner.compile_eval(make_eval_step(loss, axis_name=runner.axis_name))
        assert [float(x) for x in step(runner.place(jnp.float32(2)), batch)] == [56, 8]


def test_rows_are_split_wherever_the_arrays_of_a_step_are():
    """As many arrays as arguments, but two of them in the batch."""
    program = PmapRunner(jax.local_devices()[:2]).compile_eval(
        lambda kernel, batch: jax.lax.psum((kernel * batch["x"] - batch["y"]).sum(), "batch")
    )
    batch = {"x": np.arange(4.0), "y": np.ones(4)}
    assert float(program(np.float32(2), batch)) == 8


def test_programs_on_virtual_cpu_devices_run_one_at_a_time():
    """Two in flight can wait for each other forever: the devices share one pool of threads."""

    def slow(params, batch):
        product = jax.lax.fori_loop(0, 200, lambda _, x: jnp.tanh(x @ x), params)
        return jax.lax.psum(product.sum() + batch["x"].sum(), "batch")

    runner = PmapRunner(jax.local_devices()[:2])
    step = runner.compile_eval(slow)
    params, batch = runner.place(jnp.eye(200)), {"x": np.zeros(2, np.float32)}
    step(params, batch)
    assert step(params, batch).is_ready()


@pytest.mark.parametrize("kind", [PmapRunner, lambda devices: MeshRunner(devices=devices)])
def test_no_other_thread_starts_a_program_on_virtual_cpu_devices_meanwhile(kind):
    running, most = [], []

    def program(index):
        running.append(index)
        most.append(len(running))
        time.sleep(0.02)
        running.remove(index)
        return jnp.zeros(())

    runner, other = (kind(jax.local_devices()[:count]) for count in (2, 3))
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda i: (runner, other)[i % 2].run(program, i), range(8)))
    assert len(most) == 8 and max(most) == 1


def test_programs_of_several_runs_have_no_collectives():
    """So they may overlap on any devices."""
    runner = TogetherRunner(6, shares_batches=True, devices=jax.local_devices()[:2])
    start = (jnp.arange(6.0), jnp.ones(3))
    state = runner.create(lambda number, shared: {"x": number * shared}, start)
    train = runner.compile_train(lambda state, batch, number: (state, number * batch.sum()))
    programs = [train.lower(state, np.ones((4, 3)), runner.place_frozen(jnp.arange(6.0)))]
    for program in programs:
        text = program.compile().as_text()
        assert "ENTRY" in text and not re.search("all-|collective|reduce-scatter", text)
    for index in range(6):
        leaf = runner.take(state, index)["x"]
        assert leaf.devices() == {jax.local_devices()[0]} and leaf.tolist() == [index] * 3
    # Shards of one device each go in.
    taken = runner._take.lower(jax.tree.map(lambda x: x.addressable_data(1), state), 0)
    assert "num_partitions = 1" in taken.as_text()


@contextlib.contextmanager
def counting_compilations():
    """A list with an item for each program that is compiled meanwhile."""
    compilations = []

    def listener(event, *_, **__):
        compilations.extend([event] * (event == "/jax/core/compile/backend_compile_duration"))

    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        yield compilations
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)


@pytest.mark.parametrize("runner", [SingleRunner(), PmapRunner(jax.local_devices()[:2])])
def test_compiling_is_apart_from_the_step_and_done_once_for_each_shape(runner):
    program = runner.compile_train(lambda state, batch: (state + batch["x"].sum(), {}))
    state, batch = runner.place(jnp.float32(1)), {"x": np.ones((4, 3), np.float32)}
    with counting_compilations() as compiled:
        assert not program.is_compiled(batch)
        program.compile(state, batch)
        assert program.is_compiled(batch) and len(compiled) == 1
        assert float(state) == 1  # not given away
        state, _ = program(state, batch)
        state, _ = program(state, batch)
        assert len(compiled) == 1
        assert not program.is_compiled({"x": np.ones((8, 3), np.float32)})
        assert not program.is_compiled({"x": np.ones((4, 3), np.int32)})
