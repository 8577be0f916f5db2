"""Plans: what fits, the nearest setting that does, and the bounds of a step's time."""

import dataclasses
import importlib.util

import pytest

from jaxformer.config import ExpertsConfig, LayerConfig, LoraConfig, MeshConfig, TrainingConfig
from jaxformer.errors import ConfigError
from jaxformer.planning import (
    ACCELERATORS,
    find_accelerator,
    make_plan,
    settings_that_fit,
)
from jaxformer.planning.collectives import seconds_of
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


def test_settings_that_fit_are_found_fastest_first():
    plan = make_plan(config(), with_memory(10**9), num_devices=8)
    assert plan.fits
    state = plan.needs.total - plan.needs.activations
    tried = []
    for available in (plan.needs.total - 1, state * 2 // 3):
        too_small = make_plan(config(), with_memory(available), num_devices=8)
        assert not too_small.fits
        settings = settings_that_fit(too_small, 0.4)
        seconds = [fitting.step_seconds(0.4) for fitting, _ in settings]
        assert 1 <= len(settings) <= 3 and seconds == sorted(seconds)
        assert all(fitting.needs.total <= fitting.available for fitting, _ in settings)
        tried.append([changes for _, changes in settings])
    assert {"model.remat": "dots"} in tried[0]
    assert all(changes["mesh.fsdp"] >= 2 for changes in tried[1])
    assert settings_that_fit(make_plan(config(), with_memory(1000), num_devices=8), 0.4) == []


def test_bounds_follow_from_the_peaks():
    plan = make_plan(config(mesh=MeshConfig(fsdp=2)), H100, num_devices=8)
    assert plan.sizes == dict.fromkeys(plan.sizes, 1) | {"data": 4, "fsdp": 2}
    assert plan.flops == trace_step(plan.model.config, 8).flops
    assert plan.seconds["compute"] == plan.flops.total / (8 * H100.float32)
    traffic = sum(collective.traffic for collective in plan.collectives)
    assert plan.seconds["interconnect"] == pytest.approx(traffic / H100.interconnect)
    kinds = {(collective.kind, collective.group) for collective in plan.collectives}
    assert kinds == {("all-reduce", 4), ("all-gather", 2), ("reduce-scatter", 2)}
    assert plan.step_seconds(1.0) == max(plan.seconds.values())
    assert plan.bound(1.0) == max(plan.seconds, key=plan.seconds.get)
    assert plan.traffic == memory_traffic(plan.needs, plan.config.training.accumulate_steps)
    assert plan.seconds["memory"] == plan.traffic / H100.memory_bandwidth
    assert plan.tokens == 8 * 16


def test_pmap_sums_gradients_once_and_a_mesh_in_every_micro_batch():
    training = TrainingConfig(steps=7, batch_size=32, accumulate_steps=2)
    once = make_plan(config(training=training), H100, num_devices=2).collectives
    on_mesh = dataclasses.replace(training, runner="mesh")
    twice = make_plan(config(training=on_mesh), H100, num_devices=2).collectives
    assert (once[0].times, twice[0].times, len(once), len(twice)) == (1, 2, 1, 1)
    assert twice[0].num_bytes == 2 * once[0].num_bytes


def test_gradients_are_summed_in_every_micro_batch_where_hosts_make_a_mesh():
    training = TrainingConfig(steps=7, batch_size=32, accumulate_steps=2)
    (sums,) = make_plan(config(training=training), H100, num_devices=16).collectives
    assert (sums.kind, sums.group, sums.times, sums.on_a_host) == ("all-reduce", 16, 2, 8)
    # Eight adapters for the eight devices of a host.
    assert seconds_of([sums], H100) == pytest.approx(sums.traffic / (8 * H100.network))


def test_group_with_one_device_on_each_host_has_its_adapter_alone():
    plan = make_plan(
        config(training=TrainingConfig(steps=7, batch_size=16), mesh=MeshConfig(fsdp=8)), H100,
        num_devices=16,
    )  # fmt: skip
    over_data, *_ = (
        collective for collective in plan.collectives if collective.kind == "all-reduce"
    )
    assert (over_data.group, over_data.on_a_host) == (2, 1)
    assert seconds_of([over_data], H100) == pytest.approx(over_data.traffic / H100.network)
    gathers, *_ = (collective for collective in plan.collectives if collective.kind == "all-gather")
    assert seconds_of([gathers], H100) == pytest.approx(gathers.traffic / H100.interconnect)


def test_tokens_split_over_devices_sum_gradients_and_pass_keys_round():
    """Of the model's keys and values `[B, T, N, 2H]`: two rounds, and their gradients a third."""
    mesh = MeshConfig(sequence=4)
    plan = make_plan(config(mesh=mesh), H100, num_devices=8)
    collectives = {collective.kind: collective for collective in plan.collectives}
    assert collectives.keys() == {"all-reduce", "collective-permute"}
    assert (collectives["all-reduce"].group, collectives["all-reduce"].on_a_host) == (8, 8)
    rows = 8 // 2
    assert collectives["collective-permute"].num_bytes == 6 * 3 * (rows * 16 * 4 * 2 * 8) * 4


def test_outputs_of_shared_experts_are_summed_by_themselves():
    """Over "tensor": in four of six layers, in the forward and the backward pass."""
    experts = ExpertsConfig(num_experts=4, num_experts_per_token=2)
    sums = []
    for num_shared in (0, 2):
        mixture = dataclasses.replace(experts, num_shared_experts=num_shared)
        settings = config(mesh=MeshConfig(data=1, tensor=2))
        first = (LayerConfig(experts=False),) * 2
        mixed = dataclasses.replace(settings.model, experts=mixture, first_layers=first)
        plan = make_plan(dataclasses.replace(settings, model=mixed), H100, num_devices=2)
        (collective,) = plan.collectives
        sums.append((collective.kind, collective.times))
    assert sums == [("all-reduce", 4 * 6), ("all-reduce", 4 * 6 + 2 * 4)]


def test_data_axis_that_is_set_is_part_of_what_fits():
    mesh = MeshConfig(data=8)
    plan = make_plan(config(mesh=mesh), H100, num_devices=8)
    needed = plan.needs.parameters + plan.needs.gradients + plan.needs.optimizer
    small_plan = make_plan(config(mesh=mesh), with_memory(needed // 2), num_devices=8)
    (fitting, changes), *_ = settings_that_fit(small_plan, 0.4)
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
    assert 0 < trace_step(tuned, 8).flops.total < trace_step(config(), 8).flops.total
