"""Checks of options: numbers, bools and strings that are known when a program is traced."""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import ConfigError

__all__ = [
    "check_choice",
    "check_number",
    "positive_number",
    "static_bool",
    "static_number",
]


def check_choice(argument: str, value: Any, choices: Iterable[str]) -> None:
    """Checks that a value is one of some strings.

    Args:
        argument: name in the public signature.
        value: value that a caller gave.
        choices: the strings.

    Raises:
        ConfigError: it is something else.

    Example:
        >>> check_choice("layout", "half", ("half", "interleaved"))
    """
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        names = ", ".join(map(repr, choices[:-1]))
        raise ConfigError(f"{argument} must be {names} or {choices[-1]!r}, got {value!r}")


def static_number(argument: str, value: Any, *, remedy: str = "") -> float:
    """Checks a number that must be known when a program is traced.

    Args:
        argument: name in the public signature.
        value: int or float, of Python or NumPy.
        remedy: what the caller can do about another one.

    Returns:
        The number as a Python float.

    Raises:
        ConfigError: it is a bool, traced, not a number, or not finite in float32.

    Example:
        >>> static_number("scale", np.float32(0.5))
        0.5
    """
    message = f"{argument} must be a Python number, finite in float32, got {value!r}"
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ConfigError(f"{message}; {remedy}" if remedy else message)
    largest = float(np.finfo(np.float32).max)
    if not -largest <= value <= largest:  # of the value, as an int may be too large for a float
        raise ConfigError(message)
    return float(value)


def positive_number(argument: str, value: Any, *, remedy: str = "") -> float:
    """Checks a number above 0 that must be known when a program is traced.

    Args:
        argument: name in the public signature.
        value: int or float, of Python or NumPy.
        remedy: what the caller can do about another one.

    Returns:
        The number as a Python float.

    Raises:
        ConfigError: it is something else.

    Example:
        >>> positive_number("base", 10_000)
        10000.0
    """
    try:
        number = static_number(argument, value)
    except ConfigError:
        number = 0.0
    if number <= 0:
        message = f"{argument} must be positive and finite in float32, known when traced, got "
        raise ConfigError(f"{message}{value!r}; {remedy}" if remedy else f"{message}{value!r}")
    return number


def check_number(argument: str, value: Any) -> None:
    """Checks a number of zero or more, which may be an array of JAX, and be traced.

    Args:
        argument: name in the public signature.
        value: int or float, of Python or NumPy, or a float array `[]`.

    Raises:
        ConfigError: it is something else, or, where it is known, negative or not finite.

    Example:
        >>> check_number("eps", 1e-5)
    """
    if isinstance(value, jax.Array):
        if value.shape or not jnp.issubdtype(value.dtype, jnp.floating):
            raise ConfigError(
                f"{argument} must be one float, got dtype {value.dtype} and shape {value.shape}"
            )
    elif static_number(argument, value) < 0:
        raise ConfigError(f"{argument} must be at least 0, got {value}")


def static_bool(argument: str, value: Any) -> bool:
    """Checks a bool that must be known when a program is traced.

    Args:
        argument: name in the public signature.
        value: bool, of Python or NumPy.

    Returns:
        The Python bool.

    Raises:
        ConfigError: it is something else.

    Example:
        >>> static_bool("is_causal", True)
        True
    """
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{argument} must be True or False, known when traced, got {value!r}")
    return bool(value)
