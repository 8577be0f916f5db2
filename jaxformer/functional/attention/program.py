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
from jaxformer.functional.attention.choice import Choice, Name, choose, tuned_for
from jaxformer.functional.attention.chunked import (
    Blocks,
    block_sizes,
    chunked_attention,
    why_not_chunked,
)
from jaxformer.functional.attention.dense import dense_attention
from jaxformer.functional.attention.inputs import AttentionInputs, Implementation
from jaxformer.functional.attention.kernels.cudnn import cudnn_attention, why_not_cudnn
from jaxformer.functional.attention.kernels.splash import splash_attention, why_not_splash
from jaxformer.functional.sharding import explicit_spec, has_explicit_axes, on_automatic_axes

Attention = Callable[[AttentionInputs, jax.Array | None], tuple[jax.Array, jax.Array | None]]
"""Function of inputs and the PRNG key of dropout: output `[..., T, N, Hv]`, residual or None."""

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


def attention_program(implementation: Implementation, inputs: AttentionInputs) -> Attention:
    """Function that computes attention of these inputs by an implementation, on any platform."""
    name = check_implementation(implementation)
    _check_support(name, inputs)
    if (observed := _observed.get()) is not None:
        asked = None if name == "auto" else Choice(cast(Name, name), {})
        observed.append(asked or choose(inputs, platforms.default_platform()))
    programs = tuple(_program(name, inputs, platform) for platform in platforms.PLATFORMS)
    attend: Attention = programs[0].function()
    if len(set(programs)) > 1:
        attend = lambda inputs, rng: _attend_by_platform(inputs, rng, programs)  # noqa: E731
    arrays = [leaf for leaf in jax.tree.leaves(inputs) if hasattr(leaf, "dtype")]
    if not has_explicit_axes(*arrays):
        return attend
    rows, width = explicit_spec(inputs.query)[:-1], explicit_spec(inputs.value)[-1]
    residual = PartitionSpec(*rows) if inputs.static.return_residual else None
    return functools.partial(on_automatic_axes, attend, (PartitionSpec(*rows, width), residual))


def check_implementation(implementation: Implementation) -> str:
    """Checks the name of an implementation; "xla" and None mean dense."""
    name = "dense" if implementation in ("xla", None) else implementation
    if name != "auto" and (not isinstance(name, str) or name not in _FUNCTIONS):
        raise ConfigError(
            "implementation must be 'auto', 'dense', 'chunked', 'cudnn' or 'splash' (None and "
            f"'xla' mean dense), got {implementation!r}"
        )
    return name


def _check_support(name: str, inputs: AttentionInputs) -> None:
    """Raises ConfigError if an implementation that was asked for does not support a call."""
    reason, remedy = None, "chunked"
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


def _program(name: str, inputs: AttentionInputs, platform: str) -> _Program:
    chosen = choose(inputs, platform).name if name == "auto" else cast(Name, name)
    if chosen not in ("dense", "chunked"):
        return _Program(chosen)
    tuning = tuned_for(platform)
    # Matrix units take bfloat16, as fused kernels do (Dao et al., "FlashAttention", 2022). In
    # float16, small gradients of scores would become 0.
    rounds = tuning != "cpu" and inputs.query.dtype == jnp.bfloat16
    blocks = block_sizes(inputs, tuning) if chosen == "chunked" else None
    return _Program(chosen, "bfloat16" if rounds else None, blocks)


@platforms.jit_with_numbers  # the layers of a model share one trace of all programs
def _attend_by_platform(
    inputs: AttentionInputs, dropout_rng: jax.Array | None, programs: tuple[_Program, ...]
) -> tuple[jax.Array, jax.Array | None]:
    functions = {
        program: functools.partial(program.function(), inputs, dropout_rng) for program in programs
    }
    named = zip(platforms.PLATFORMS, programs, strict=True)
    return platforms.by_platform({platform: functions[program] for platform, program in named})
