"""Checks of options: numbers, bools and strings known at trace time."""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import ConfigError

__all__ = [
    "check_choice",
    "check_nonnegative",
    "static_bool",
    "static_number",
    "static_softcap",
]


def check_choice(argument: str, value: Any, choices: Iterable[str]) -> None:
    """Checks that a value is one of the allowed strings.

    Args:
        argument: name in the public signature.
        value: value from the caller.
        choices: the allowed strings.

    Raises:
        ConfigError: it is not.

    Example:
        >>> check_choice("layout", "half", ("half", "interleaved"))
    """
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        names = ", ".join(map(repr, choices[:-1]))
        raise ConfigError(f"{argument} must be {names} or {choices[-1]!r}, got {value!r}")


def static_number(argument: str, value: Any, *, positive: bool = False, remedy: str = "") -> float:
    """Checks a number that must be known at trace time.

    Args:
        argument: name in the public signature.
        value: Python or NumPy int or float.
        positive: whether it must be above 0.
        remedy: what the caller can do; the end of the message.

    Returns:
        The number as a Python float.

    Raises:
        ConfigError: it is a bool, traced, not a number, not finite in float32, or not positive
            although required.

    Example:
        >>> static_number("scale", np.float32(0.5))
        0.5
    """
    is_number = isinstance(value, int | float | np.integer | np.floating)
    largest = float(np.finfo(np.float32).max)
    # Compares value, not float(value): an int may be too large for a float.
    fits = is_number and not isinstance(value, bool) and -largest <= value <= largest
    if not fits or (positive and value <= 0):
        rule = "a Python number, finite in float32"
        if positive:
            rule = "positive and finite in float32, known when traced"
        message = f"{argument} must be {rule}, got {value!r}"
        raise ConfigError(f"{message}; {remedy}" if remedy else message)
    return float(value)


def static_softcap(value: Any) -> float | None:
    """Checks a soft cap c, as in c * tanh(scores / c), which must be known at trace time.

    Args:
        value: the argument softcap: a positive int or float, or None for no cap.

    Returns:
        The cap as a Python float, or None.

    Raises:
        ConfigError: it is anything else.

    Example:
        >>> static_softcap(30)
        30.0
    """
    if value is None:
        return None
    return static_number("softcap", value, positive=True, remedy="None = no cap")


def check_nonnegative(argument: str, value: Any) -> None:
    """Checks a number of zero or more, which may also be a traced array.

    Args:
        argument: name in the public signature.
        value: Python or NumPy int or float, or a float array `[]`.

    Raises:
        ConfigError: it is anything else, or known to be negative or not finite.

    Example:
        >>> check_nonnegative("eps", 1e-5)
    """
    if isinstance(value, jax.Array):
        if value.shape or not jnp.issubdtype(value.dtype, jnp.floating):
            raise ConfigError(
                f"{argument} must be one float, got dtype {value.dtype} and shape {value.shape}"
            )
    elif static_number(argument, value) < 0:
        raise ConfigError(f"{argument} must be at least 0, got {value}")


def static_bool(argument: str, value: Any) -> bool:
    """Checks a bool that must be known at trace time.

    Args:
        argument: name in the public signature.
        value: Python or NumPy bool.

    Returns:
        The Python bool.

    Raises:
        ConfigError: it is anything else.

    Example:
        >>> static_bool("is_causal", True)
        True
    """
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{argument} must be True or False, known when traced, got {value!r}")
    return bool(value)
