"""Virtual devices of the CPU, and when `jaxformer train` uses two of them by default."""

import dataclasses
import importlib.metadata
import importlib.util
import os

import jax

from jaxformer.config import ExperimentConfig, MeshConfig
from jaxformer.errors import ConfigError
from jaxformer.memory import usable_cores

# Bounds of models and steps that are faster on two devices, from measurements on two cores: of
# 0.8 M parameters, 512 tokens took 0.75 of the time and 256 tokens 1.16; 3 M parameters, the same.
_MOST_PARAMETERS = 10**6
_LEAST_WORK = 4 * 10**8  # parameters times tokens per step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """What `default_cpu_devices` depends on besides the config.

    Args:
        cores: number of CPU cores that the process may use.
        is_cpu_only: whether JAX can only use the CPU.
        is_split: whether the number of CPU devices is set outside of the config.
        has_other_hosts: whether the process is one of a job on several hosts.
    """

    cores: int
    is_cpu_only: bool
    is_split: bool = False
    has_other_hosts: bool = False

    @classmethod
    def here(cls) -> "Machine":
        """This process. Does not start JAX; call it after `start_hosts`."""
        return cls(
            cores=usable_cores(),
            is_cpu_only=_is_cpu_only(),
            is_split=jax.config.jax_num_cpu_devices != -1
            or "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""),
            has_other_hosts=jax.distributed.is_initialized(),
        )


def default_cpu_devices(config: ExperimentConfig, machine: Machine) -> int | None:
    """Number of virtual devices to split the CPU into if the config does not say; None = no split.

    It is 2 if all of this is true, and None otherwise:

    - Nothing else chooses the devices: not training.devices, training.cpu_devices, [mesh], the
      runner, JAX's own settings, or a launch on several hosts.
    - JAX can only use the CPU, of which the process may use two cores.
    - The losses are equal to rounding: the batch has the same rows (batch_size, a multiple of
      2 * accumulate_steps), nothing is drawn by device (dropout), and no loss is computed from all
      tokens of a device together (mixture of experts). bfloat16 is left out, because sums over
      devices would round visibly.
    - It is faster: every device updates all parameters, so these must be few, with a vocabulary
      that is known to be small, and a step must have enough work to split. Muon's updates cost too
      much to be computed twice.
    """
    model, training = config.model, config.training
    batch_size = training.batch_size
    is_chosen = (
        training.cpu_devices is not None
        or training.devices is not None
        or training.runner not in ("auto", "pmap")
        or config.mesh != MeshConfig()
        or machine.is_split
        or machine.has_other_hosts
    )
    if is_chosen or not machine.is_cpu_only or machine.cores < 2:
        return None
    if batch_size is None or batch_size % (2 * training.accumulate_steps):
        return None
    if model.dropout_rate or model.experts is not None:
        return None
    if "bfloat16" in (model.dtype, model.param_dtype):
        return None
    parameters = _estimated_parameters(config)
    is_faster = (
        parameters is not None
        and parameters <= _MOST_PARAMETERS
        and parameters * batch_size * model.max_len >= _LEAST_WORK
        and config.optimizer.name != "muon"
    )
    return 2 if is_faster else None


def _estimated_parameters(config: ExperimentConfig) -> int | None:
    """Number of parameters of blocks of the usual width and the table; None if not yet known."""
    model, tokenizer = config.model, config.tokenizer
    vocab_size = model.vocab_size or tokenizer.most_tokens
    if vocab_size is None:
        if tokenizer.kind not in ("byte", "character"):
            return None
        vocab_size = 257  # of bytes; characters are usually fewer
    return 12 * model.num_layers * model.d_model**2 + vocab_size * model.d_model


def _is_cpu_only() -> bool:
    """Whether JAX can only use the CPU: it is told so, or has no plug-in for another device."""
    if jax.config.jax_platforms:
        return jax.config.jax_platforms == "cpu"
    plug_ins = any(map(importlib.util.find_spec, ("jax_plugins", "libtpu")))
    others = os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS") or os.environ.get("TPU_LIBRARY_PATH")
    return not (plug_ins or others or importlib.metadata.entry_points(group="jax_plugins"))


def split_cpu(count: int) -> None:
    """Splits this machine's CPU into `count` virtual devices; call it before JAX starts."""
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # JAX has started, which is fine with the same number
        if len(jax.local_devices(backend="cpu")) != count:
            raise ConfigError(
                f"training.cpu_devices={count} must be set before JAX starts, but it has already "
                f"started with {len(jax.local_devices(backend='cpu'))} CPU devices"
            ) from None
