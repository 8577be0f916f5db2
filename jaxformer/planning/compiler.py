"""Compiles the real training step with the TPU compiler, on a machine without a TPU."""

import importlib.util
import os
import time
from collections.abc import Sequence
from typing import NamedTuple

import jax

from jaxformer.accelerators import Accelerator
from jaxformer.errors import ConfigError
from jaxformer.functional.attention.program import observed_choices
from jaxformer.functional.platforms import compiling_for
from jaxformer.hlo import parse_hlo
from jaxformer.planning.collectives import Collective, read_collectives
from jaxformer.planning.settings import batch_rows
from jaxformer.runs import TextModel
from jaxformer.runs.weights.shapes import split_shapes, state_shapes
from jaxformer.runs.weights.trials import run_recipe
from jaxformer.training.attention_report import describe_choices
from jaxformer.training.parallel import runner_on
from jaxformer.training.trial import make_programs

# Read by libtpu when it is loaded: no metadata server, the workers, and no logs of what is missing.
_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # a lock file is for processes that use the chips
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",  # of this machine; any value works
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}
# On a TPU v4, the two cores of a chip are one device by default ("megacore").
_CHIP_CONFIGS = {"v4": {"chip_config_name": "megacore"}}


class CompiledStep(NamedTuple):
    """A compiled training step: its memory, in bytes on each device, and what it moves.

    Args:
        seconds: compile time.
        arguments: parameters, optimizer state, and the batch.
        results: results that do not reuse the memory of an argument.
        temporaries: gradients, activations and buffers.
        program: the code.
        collectives: collectives of a step.
        attention: implementations of attention in the step, and why no fused kernel is among them.
        text: the compiled program, as XLA writes it.
        failure: why compiling failed, such as too little memory; None if it succeeded.
    """

    seconds: float
    arguments: int = 0
    results: int = 0
    temporaries: int = 0
    program: int = 0
    collectives: tuple[Collective, ...] = ()
    attention: tuple[str, ...] = ()
    text: str = ""
    failure: str | None = None

    @property
    def total(self) -> int:
        """Total bytes on the device."""
        return self.arguments + self.results + self.temporaries + self.program


def topology_devices(accelerator: Accelerator, topology: str) -> Sequence[jax.Device]:
    """Devices of a TPU slice, such as "4x4" chips, for the compiler; they need not be present."""
    if importlib.util.find_spec("libtpu") is None:
        raise ConfigError(
            f"a plan for the TPU {accelerator.name} needs its compiler, which is not installed; "
            'pip install "jaxformer[tpu]"'
        )
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from jax.experimental import topologies

    name, chips = f"{accelerator.name}:{topology}", _CHIP_CONFIGS.get(accelerator.name, {})
    try:
        return topologies.get_topology_desc(platform="tpu", topology_name=name, **chips).devices
    except (RuntimeError, ValueError) as error:  # XLA raises RuntimeError
        raise ConfigError(
            f"topology must be the chips of a slice, such as 2x2, or 2x2x1 for v4 and v5p, got "
            f"{topology!r} for {accelerator.name}: {error}"
        ) from error


def compile_step(model: TextModel, devices: Sequence[jax.Device], platform: str) -> CompiledStep:
    """Compiles the training step of a model for devices of a platform; they need not be present."""
    config, training = model.config, model.config.training
    runner = runner_on(devices, training.runner, config.mesh)
    batch = model.batch_shapes(batch_rows(config, runner.num_shards))
    recipe = run_recipe(model)
    _, frozen = split_shapes(model)
    # Layers and attention that are "auto", and chunks of the loss, depend on it.
    with compiling_for(platform), observed_choices() as choices:
        lowered = make_programs(recipe.make, training, runner).train.lower(
            runner.template(state_shapes(model)), runner.batch_template(batch),
            runner.template(jax.eval_shape(lambda: recipe.arguments)), runner.template(frozen),
        )  # fmt: skip
        attention = tuple(describe_choices(choices))
    start = time.monotonic()
    try:
        compiled = lowered.compile()
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        # Without the list of all buffers.
        failure = " ".join(str(error).partition("\n\n")[0].split())
        return CompiledStep(time.monotonic() - start, failure=failure)
    seconds, memory, text = time.monotonic() - start, compiled.memory_analysis(), compiled.as_text()
    return CompiledStep(
        seconds=seconds,
        arguments=memory.argument_size_in_bytes,
        results=memory.output_size_in_bytes - memory.alias_size_in_bytes,
        temporaries=memory.temp_size_in_bytes,
        program=memory.generated_code_size_in_bytes,
        collectives=tuple(read_collectives(parse_hlo(text), len(devices))),
        attention=attention,
        text=text,
    )
