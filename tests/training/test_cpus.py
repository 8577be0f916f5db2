"""When the CPU is split into two devices by default."""

import dataclasses
import importlib.metadata
import types

import jax
import pytest

from jaxformer import memory
from jaxformer.config import MeshConfig, MuonConfig, load_config
from jaxformer.config.model_parts import ExpertsConfig
from jaxformer.training.parallel import Machine, cpus, default_cpu_devices

SMALL = load_config("nanogpt_cpu")
TWO_CORES = Machine(cores=2, is_cpu_only=True)


def changed(**tables):
    """The small config with other settings in its tables, or with other tables."""
    return dataclasses.replace(
        SMALL,
        **{
            name: dataclasses.replace(getattr(SMALL, name), **new) if type(new) is dict else new
            for name, new in tables.items()
        },
    )


@pytest.mark.parametrize("cores", [2, 3, 64])
def test_small_model_is_split_over_two_devices(cores):
    assert default_cpu_devices(SMALL, Machine(cores=cores, is_cpu_only=True)) == 2


@pytest.mark.parametrize(
    "machine",
    [
        Machine(cores=1, is_cpu_only=True),
        Machine(cores=2, is_cpu_only=False),
        Machine(cores=2, is_cpu_only=True, is_split=True),
        Machine(cores=2, is_cpu_only=True, has_other_hosts=True),
    ],
)
def test_other_machines_are_not_split(machine):
    assert default_cpu_devices(SMALL, machine) is None


@pytest.mark.parametrize(
    "tables",
    [
        {"training": {"accumulate_steps": 2}},
        {"training": {"accumulate_steps": 6}},
        {"training": {"runner": "pmap"}},
        {"training": {"batch_size": 8}},
        {"tokenizer": {"kind": "byte"}},
        {"tokenizer": {"kind": "bpe", "vocab_size": 512}},
    ],
)
def test_these_settings_allow_the_split(tables):
    assert default_cpu_devices(changed(**tables), TWO_CORES) == 2


@pytest.mark.parametrize(
    "tables",
    [
        {"training": {"cpu_devices": 1}},
        {"training": {"cpu_devices": 2}},
        {"training": {"devices": 1}},
        {"training": {"runner": "single"}},
        {"training": {"runner": "mesh"}},
        {"mesh": MeshConfig(data=1)},
        {"training": {"batch_size": 13}},
        {"training": {"accumulate_steps": 4}},  # 12 rows, but not a multiple of 2 * 4
        {"model": {"dropout_rate": 0.1}},
        {"model": {"experts": ExpertsConfig(num_experts=2, num_experts_per_token=1)}},
        {"model": {"dtype": "bfloat16"}},
        {"model": {"param_dtype": "bfloat16"}},
        {"optimizer": MuonConfig(learning_rate=1e-3)},
        {"training": {"batch_size": 4}},
        {"model": {"num_layers": 8}},
        {"model": {"d_model": 192}},
        {"tokenizer": {"kind": "bpe"}},  # 2,048 ids
        {"tokenizer": {"kind": "word"}},  # any number of ids
    ],
)
def test_these_settings_prevent_the_split(tables):
    assert default_cpu_devices(changed(**tables), TWO_CORES) is None


def test_pairs_are_not_split_because_their_batches_depend_on_the_devices():
    assert default_cpu_devices(load_config("phrasebook_en_kn"), TWO_CORES) is None


@pytest.mark.parametrize(
    ("platforms", "variables", "expected"),
    [
        ("cpu", {"PJRT_NAMES_AND_LIBRARY_PATHS": "npu:/x.so"}, True),
        ("cuda,cpu", {}, False),
        (None, {}, True),
        (None, {"PJRT_NAMES_AND_LIBRARY_PATHS": "npu:/x.so"}, False),
        (None, {"TPU_LIBRARY_PATH": "/x.so"}, False),
    ],
)
def test_jax_can_only_use_the_cpu_where_there_is_no_plug_in(
    monkeypatch, platforms, variables, expected
):
    for name in ("PJRT_NAMES_AND_LIBRARY_PATHS", "TPU_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cpus.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: ())
    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", platforms)
    try:
        assert Machine.here().is_cpu_only == expected
        monkeypatch.setattr(cpus.importlib.util, "find_spec", lambda name: name == "libtpu")
        assert Machine.here().is_cpu_only == (platforms == "cpu")
    finally:
        jax.config.update("jax_platforms", before)


def test_devices_set_outside_of_the_config_are_respected(monkeypatch):
    assert Machine.here().is_split  # tests/conftest.py sets jax_num_cpu_devices
    unset = types.SimpleNamespace(jax_num_cpu_devices=-1, jax_platforms="cpu")
    monkeypatch.setattr(cpus.jax, "config", unset)
    assert not Machine.here().is_split
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    assert Machine.here().is_split


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("cpu.max", "150000 100000", 1),
        ("cpu.max", "max 100000", 7),
        ("cpu.max", "50000 100000", 1),
        ("a/cpu.max", "300000 100000", 3),
        ("cpu/cpu.cfs_quota_us", "300000", 3),
        ("cpu/cpu.cfs_quota_us", "-1", 7),
    ],
)
def test_cores_are_those_of_affinity_and_control_groups(
    tmp_path, monkeypatch, file, text, expected
):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text + "\n")
    if "cfs" in file:
        (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory.os, "sched_getaffinity", lambda _: set(range(7)), raising=False)
    real = memory._text
    monkeypatch.setattr(
        memory, "_text", lambda path: "0::/a\n" if str(path) == "/proc/self/cgroup" else real(path)
    )
    assert memory.usable_cores() == expected
