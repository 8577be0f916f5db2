"""jaxformer plan."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

from jaxformer.cli.experiment import ConfigFlags, read_config
from jaxformer.cli.terminal import readable_seconds, show_named
from jaxformer.config.checks import Bound, PositiveInt
from jaxformer.memory import readable_bytes

if TYPE_CHECKING:
    from jaxformer import planning


def plan(
    config: str,
    *,
    flags: ConfigFlags,
    accelerator: str,
    devices: PositiveInt | None = None,
    topology: str | None = None,
    utilization: Annotated[float, Bound(lambda value: 0 < value <= 1, "be in (0, 1]")] = 0.4,
) -> None:
    """Estimate training memory and time on devices you need not have.

    This allocates no model and reads no data. For TPUs, the TPU compiler compiles the step; install
    jaxformer[tpu]. Flags override keys of the config, as in jaxformer train. The exit status is 0
    if the step fits in memory, else 1.

    Args:
        config: config file, name of a built-in config, or run folder, such as runs/quickstart.
        accelerator: A100, H100, H200, B200, v4, v5e, v5p or v6e.
        devices: number of GPUs; as many as the config's mesh needs if not set.
        topology: shape of the TPU slice in chips, such as 4x4, or 2x2x1 for v4 and v5p; required
            for TPUs.
        utilization: fraction of the peak FLOP/s to assume for the training time.
    """
    experiment = read_config(config, flags)
    import jax

    jax.config.update("jax_platforms", "cpu")  # set before JAX starts; no accelerator is needed
    from jaxformer import planning

    estimate = planning.make_plan(
        experiment, planning.find_accelerator(accelerator), num_devices=devices, topology=topology
    )
    for name, text in _lines(estimate, utilization).items():
        show_named(name, text)
    if estimate.fits:
        return
    text = "nothing, even with more remat, micro-batches or fsdp; use more devices"
    if (fitting := planning.setting_that_fits(estimate)) is not None:
        setting, changes = fitting
        words = " ".join(f"--{key.replace('_', '-')} {new}" for key, new in changes.items())
        total = setting.needs.total if setting.compiled is None else setting.compiled.total
        text = f"{words}: {readable_bytes(total)}, {_speed(setting, utilization)}"
    show_named("fits", text)
    sys.exit(1)


def _lines(plan: "planning.Plan", utilization: float) -> dict[str, str]:
    """The lines of a plan: text by name."""
    place, model, training = plan.place, plan.config.model, plan.config.training
    needs = plan.needs
    mesh = ", ".join(f"{axis} {size}" for axis, size in plan.sizes.items())
    seconds, peak = (training.steps * plan.step_seconds(share) for share in (utilization, 1.0))
    return {
        "devices": f"{place.num_devices} x {place.accelerator.name}; mesh {mesh}",
        "model": f"{plan.model.kind}; {plan.num_params:,} parameters; "
        f"vocabulary {model.vocab_size:,}; {model.dtype}, remat {model.remat}",
        "step": f"{plan.rows:,} rows of {model.max_len:,} tokens; micro-batches: "
        f"{training.accumulate_steps}; {plan.flops:.4g} FLOPs of matrix products",
        "exact": _parts(
            needs, "parameters", "gradients", "optimizer", *(["average"] if needs.average else [])
        ),
        **_memory_lines(plan),
        "traffic": f"at least {readable_bytes(plan.traffic)} (through the memory of each device)",
        "bounds": _bounds(plan),
        "speed": _speed(plan, utilization),
        "training": f"{training.steps:,} steps, {training.steps * plan.tokens:.3g} tokens, in "
        f"{readable_seconds(seconds)} at {utilization:.0%} of the peak "
        f"({readable_seconds(peak)} at 100%)",
    }


def _memory_lines(plan: "planning.Plan") -> dict[str, str]:
    """Memory that a device needs, whether it fits, and the collectives of a compiled step."""
    needs, compiled, available = plan.needs, plan.compiled, readable_bytes(plan.available)
    if compiled is None:
        total, memory = readable_bytes(needs.total), readable_bytes(plan.place.accelerator.memory)
        return {
            "estimated": _parts(needs, "activations"),
            "memory": f"{total} per device: {'fits' if plan.fits else 'does not fit'}; "
            f"JAX reserves {available} of the {memory}",
        }
    attention = {"attention": "; ".join(compiled.attention)}
    if compiled.failure is not None:
        return attention | {"memory": f"does not fit; the compiler reports: {compiled.failure}"}
    parts = _parts(compiled, "arguments", "results", "temporaries", "program")
    listed = "; ".join(
        f"{collective.times:,} {collective.kind} over {collective.group}, "
        f"{readable_bytes(collective.num_bytes)}"
        for collective in compiled.collectives
    )
    return attention | {
        "compiled": f"{parts}; in {compiled.seconds:.0f} s",
        "memory": f"{readable_bytes(compiled.total)} of {available} on each device: fits",
        "collectives": f"{listed or 'none'} (on each device)",
    }


def _bounds(plan: "planning.Plan") -> str:
    """The least times of a step, and which of them is the largest."""
    listed = ", ".join(f"{name} {readable_seconds(least)}" for name, least in plan.seconds.items())
    return f"{listed}; {plan.bound(1.0)} limits the step at the peak"


def _parts(owner: Any, *names: str) -> str:
    """Sizes of an owner's attributes."""
    return ", ".join(f"{name} {readable_bytes(getattr(owner, name))}" for name in names)


def _speed(plan: "planning.Plan", utilization: float) -> str:
    seconds = plan.step_seconds(utilization)
    return (
        f"{readable_seconds(seconds)} a step, {plan.tokens / seconds:,.0f} tokens/s at "
        f"{utilization:.0%} of the peak"
    )
