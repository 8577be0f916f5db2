"""Plans: what fits, the nearest setting that does, and the bounds of a step's time."""

import dataclasses
import importlib.util

import pytest

from jaxformer.config import LoraConfig, MeshConfig, TrainingConfig
from jaxformer.errors import ConfigError
from jaxformer.planning import ACCELERATORS, find_accelerator, make_plan, setting_that_fits
from jaxformer.planning.memory import memory_traffic
from jaxformer.planning.settings import trace_step
from tests.small_config import model, small

H100 = ACCELERATORS["H100"]


def config(**changes):
    sizes = {"vocab_size": 22, "max_len": 16, "d_model": 32, "num_heads": 4, "num_layers": 6}
    training = TrainingConfig(steps=7, batch_size=8)
    return small(model=model(**sizes), **{"training": training} | changes)


def with_memory(num_bytes):
    """An accelerator of which JAX takes so much."""
    return dataclasses.replace(H100, memory=num_bytes * 4 // 3)


def test_nearest_setting_that_fits_is_found():
    plan = make_plan(config(), with_memory(10**9), num_devices=8)
    assert plan.fits
    state = plan.needs.total - plan.needs.activations
    for available, nearest in (
        (plan.needs.total - 1, {"model.remat": "dots"}),
        (state * 2 // 3, {"model.remat": "full", "mesh.fsdp": 2}),
    ):
        small_plan = make_plan(config(), with_memory(available), num_devices=8)
        fitting, changes = setting_that_fits(small_plan)
        assert fitting.fits and changes == nearest
    assert setting_that_fits(make_plan(config(), with_memory(1000), num_devices=8)) is None


def test_bounds_follow_from_the_peaks():
    plan = make_plan(config(mesh=MeshConfig(fsdp=2)), H100, num_devices=8)
    assert plan.sizes == dict.fromkeys(plan.sizes, 1) | {"data": 4, "fsdp": 2}
    assert plan.flops == trace_step(plan.model.config, 8).flops
    assert plan.seconds["compute"] == plan.flops / (8 * H100.float32)
    assert plan.seconds.keys() == {"compute", "memory"}  # and the interconnect of a compiled step
    assert plan.step_seconds(1.0) == max(plan.seconds.values())
    assert plan.bound(1.0) == max(plan.seconds, key=plan.seconds.get)
    assert plan.traffic == memory_traffic(plan.needs, plan.config.training.accumulate_steps)
    assert plan.seconds["memory"] == plan.traffic / H100.memory_bandwidth
    assert plan.tokens == 8 * 16


def test_data_axis_that_is_set_is_part_of_what_fits():
    mesh = MeshConfig(data=8)
    plan = make_plan(config(mesh=mesh), H100, num_devices=8)
    needed = plan.needs.parameters + plan.needs.gradients + plan.needs.optimizer
    small_plan = make_plan(config(mesh=mesh), with_memory(needed // 2), num_devices=8)
    fitting, changes = setting_that_fits(small_plan)
    assert fitting.fits and changes["mesh.data"] * changes["mesh.fsdp"] == 8


def test_kernel_of_a_gpu_is_planned_without_one():
    sizes = {"vocab_size": 22, "max_len": 16, "d_model": 32, "num_heads": 4, "num_layers": 2}
    experiment = small(
        model=model(**sizes, attention_implementation="cudnn", dtype="bfloat16"),
        training=TrainingConfig(steps=7, batch_size=8),
    )
    plan = make_plan(experiment, H100, num_devices=8)
    assert plan.fits
    # Other layers and attention are only traced: what is compiled, or suggested, is as configured.
    names = ("attention_implementation", "layer_execution")
    assert [getattr(plan.config.model, name) for name in names] == ["cudnn", "auto"]


def test_unknown_accelerators_and_places_are_refused():
    with pytest.raises(ConfigError, match="must be one of A100.*did you mean 'H200'"):
        find_accelerator("H20")
    with pytest.raises(ConfigError, match="TPUs needs their topology"):
        make_plan(config(), ACCELERATORS["v5e"], num_devices=4)
    with pytest.raises(ConfigError, match="topology is for TPUs"):
        make_plan(config(), H100, topology="2x2")
    single = TrainingConfig(steps=7, batch_size=8, runner="single")
    with pytest.raises(ConfigError, match="'single' uses one device, got 2; remove it"):
        make_plan(config(training=single), H100, num_devices=2)
    if importlib.util.find_spec("libtpu") is None:
        with pytest.raises(ConfigError, match=r'pip install "jaxformer\[tpu\]"'):
            make_plan(config(), ACCELERATORS["v5e"], topology="2x2")


def test_a_step_of_lora_computes_less_than_one_of_all_parameters():
    """Its shapes come from computing a little."""
    tuned = dataclasses.replace(config(), init_from="elsewhere", lora=LoraConfig(rank=2))
    assert 0 < trace_step(tuned, 8).flops < trace_step(config(), 8).flops
