"""Every shipped config: its training step compiles for a TPU, and lowers for an NVIDIA GPU."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import jax
import pytest

from jaxformer.config import MeshConfig, load_config
from jaxformer.errors import ConfigError
from jaxformer.planning.settings import batch_rows, planned_model
from jaxformer.runs.weights.shapes import state_shapes
from jaxformer.training import MeshRunner, SingleRunner, make_optimizer, make_train_step

ROOT = pathlib.Path(__file__).parents[2]
CONFIGS = sorted(path.stem for path in (ROOT / "configs").glob("*.toml"))
FROM_DATA = {"vocab_size": 96, "source_vocab_size": 96, "num_classes": 6}  # where only it says so
MESH = MeshConfig(fsdp=2, tensor=2)

COMPILE = """
import dataclasses, json, sys
import jax
jax.config.update("jax_platforms", "cpu")
from jaxformer.planning import ACCELERATORS, make_plan
from tests.planning.test_ready_configs import MESH, full_config
config = full_config(sys.argv[1])
if sys.argv[2] == "mesh":
    config = dataclasses.replace(config, mesh=MESH)
plan = make_plan(config, ACCELERATORS["v5p"], topology="2x2x1")
step, needs = plan.compiled, plan.needs
print(json.dumps({
    "failure": step.failure, "sizes": plan.sizes, "total": step.total, "seconds": step.seconds,
    "arguments": step.arguments, "state": needs.parameters + needs.optimizer + needs.average,
    "collectives": [collective.kind for collective in step.collectives],
}))
"""


def full_config(name):
    """A config of the folder, with the sizes that its data would give it."""
    config = load_config(ROOT / "configs" / f"{name}.toml")
    while True:
        try:
            return planned_model(config).config
        except ConfigError as error:  # names the flag of what only the data says
            key = re.search(r"--model\.([\w-]+)", str(error))[1].replace("-", "_")
            model = dataclasses.replace(config.model, **{key: FROM_DATA[key]})
            config = dataclasses.replace(config, model=model)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
@pytest.mark.parametrize("runner", ["pmap", "mesh"])
@pytest.mark.parametrize("name", CONFIGS)
def test_step_compiles_for_a_tpu(name, runner):
    """For four chips of 95 GiB; the largest batches do not fit one v5e."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, name, runner], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": ""},
    )  # fmt: skip
    report = json.loads(done.stdout.splitlines()[-1])
    print(name, runner, report)
    assert report["failure"] is None and report["total"] < 95 * 2**30
    sizes = [report["sizes"][axis] for axis in ("data", "fsdp", "tensor")]
    assert sizes == ([4, 1, 1] if runner == "pmap" else [1, 2, 2])
    # Arrays are padded to tiles, and the batch is an argument, too.
    assert report["arguments"] >= report["state"]
    assert {"all-reduce", *["all-gather"] * (runner == "mesh")} <= {*report["collectives"]}


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["single", "mesh"])
@pytest.mark.parametrize("name", CONFIGS)
def test_step_lowers_for_a_gpu(name, runner):
    model = planned_model(full_config(name))
    config = model.config
    runner = SingleRunner() if runner == "single" else MeshRunner(MESH, jax.local_devices()[:4])
    step = make_train_step(
        model.loss(config.training.label_smoothing),
        make_optimizer(config.optimizer, config.schedule),
        seed=config.seed, accumulate_steps=config.training.accumulate_steps,
    )  # fmt: skip
    program = runner.compile_train(step)
    batch = model.batch_shapes(batch_rows(config, runner.num_shards))
    with runner.context():
        exported = jax.export.export(program._function, platforms=["cuda"])(
            runner.template(state_shapes(model)), runner.batch_template(batch), ()
        )
    assert exported.platforms == ("cuda",) and exported.nr_devices == runner.num_devices
