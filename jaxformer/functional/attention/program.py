"""Programs of attention: an implementation for each platform, ready to call."""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jaxformer.errors import ConfigError
from jaxformer.functional import platforms
from jaxformer.functional.attention.choice import Choice, choose, tuned_for
from jaxformer.functional.attention.chunked import (
    Blocks,
    block_sizes,
    chunked_attention,
    why_not_chunked,
)
from jaxformer.functional.attention.dense import dense_attention
from jaxformer.functional.attention.inputs import AttentionInputs, Name
from jaxformer.functional.attention.kernels.cudnn import cudnn_attention, why_not_cudnn
from jaxformer.functional.attention.kernels.splash import splash_attention, why_not_splash
from jaxformer.functional.sharding import explicit_spec, has_explicit_axes, on_automatic_axes

Attention = Callable[[AttentionInputs], tuple[jax.Array, jax.Array | None]]
"""Function of inputs: output `[..., T, N, Hv]`, and residual `[..., T, N]` or None."""

_FUNCTIONS: dict[Name, Callable[..., Any]] = {
    "dense": dense_attention,
    "chunked": chunked_attention,
    "cudnn": cudnn_attention,
    "splash": splash_attention,
}


_observed: contextvars.ContextVar[list[Choice] | None] = contextvars.ContextVar(
    "observed choices", default=None
)


@contextlib.contextmanager
def observed_choices() -> Iterator[list[Choice]]:
    """List of the choices that attention traced in this context makes on the default platform."""
    choices: list[Choice] = []
    token = _observed.set(choices)
    try:
        yield choices
    finally:
        _observed.reset(token)


def describe_choices(choices: Sequence[Choice]) -> list[str]:
    """Each implementation in use, and why no fused kernel is, for the default platform.

    Example:
        >>> describe_choices([Choice("chunked", {"cudnn": "it has no soft cap"})] * 2)
        ['chunked (a CPU has no fused kernel)']
    """
    platform = platforms.default_platform()
    kernel = {"cuda": "cudnn", "tpu": "splash"}.get(platform)
    lines = []
    for name, declined in choices:
        if name in ("cudnn", "splash"):
            lines.append(f"{name}, a fused kernel")
        elif not declined:
            lines.append(f"{name}, as it was asked for")
        elif kernel is None:
            lines.append(f"{name} (a {platform.upper()} has no fused kernel)")
        else:
            lines.append(f"{name}, not the fused kernel {kernel}: {declined[kernel]}")
    return list(dict.fromkeys(lines))


class _Program(NamedTuple):
    """Implementation for a platform, and what dense and chunked attention are told for it."""

    name: Name
    operands: str | None = None  # as in `StaticOptions`
    blocks: Blocks | None = None

    def function(self) -> Attention:
        """The implementation as a function of the inputs."""
        options = {"operands": self.operands, "blocks": self.blocks}
        used = {name: option for name, option in options.items() if option is not None}
        return functools.partial(_FUNCTIONS[self.name], **used)


def attention_program(inputs: AttentionInputs) -> Attention:
    """Function that computes attention of inputs like these, on any platform."""
    _check_support(inputs)
    if (observed := _observed.get()) is not None:
        observed.append(_choice(inputs, platforms.default_platform()))
    programs = tuple(_program(inputs, platform) for platform in platforms.PLATFORMS)
    attend: Attention = programs[0].function()
    if len(set(programs)) > 1:
        attend = functools.partial(_attend_by_platform, programs)
    if not has_explicit_axes(*jax.tree.leaves(inputs)):
        return attend
    rows, width = explicit_spec(inputs.query)[:-1], explicit_spec(inputs.value)[-1]
    residual = PartitionSpec(*rows) if inputs.static.return_residual else None
    return functools.partial(on_automatic_axes, attend, (PartitionSpec(*rows, width), residual))


def _check_support(inputs: AttentionInputs) -> None:
    """Raises ConfigError if an implementation that was asked for does not support a call."""
    name, reason, remedy = inputs.implementation, None, "chunked"
    if name == "cudnn":
        reason = why_not_cudnn(inputs, "cuda")
    elif name == "splash":
        reason = why_not_splash(inputs, "tpu")
    elif name == "chunked":
        reason, remedy = why_not_chunked(inputs), "dense"
    if reason is not None:
        raise ConfigError(
            f"implementation={name!r} cannot serve this call: {reason}; pass 'auto' or {remedy!r}"
        )


def _choice(inputs: AttentionInputs, platform: str) -> Choice:
    if inputs.implementation == "auto":
        return choose(inputs, platform)
    return Choice(cast(Name, inputs.implementation), {})


def _program(inputs: AttentionInputs, platform: str) -> _Program:
    name = _choice(inputs, platform).name
    if name not in ("dense", "chunked"):
        return _Program(name)
    tuning = tuned_for(platform)
    # Matrix units take bfloat16, as fused kernels do (Dao et al., "FlashAttention", 2022). In
    # float16, small gradients of scores would become 0.
    rounds = tuning != "cpu" and inputs.query.dtype == jnp.bfloat16
    blocks = block_sizes(inputs, tuning) if name == "chunked" else None
    return _Program(name, "bfloat16" if rounds else None, blocks)


@functools.partial(jax.jit, static_argnums=0)  # layers of a model share one trace of all programs
def _attend_by_platform(
    programs: tuple[_Program, ...], inputs: AttentionInputs
) -> tuple[jax.Array, jax.Array | None]:
    functions = {program: functools.partial(program.function(), inputs) for program in programs}
    named = zip(platforms.PLATFORMS, programs, strict=True)
    return platforms.by_platform({platform: functions[program] for platform, program in named})
