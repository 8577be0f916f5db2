"""Checks of options: numbers, bools and strings that are known when a program is traced."""

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


def static_number(argument: str, value: Any, *, positive: bool = False, remedy: str = "") -> float:
    """Checks a number that must be known when a program is traced.

    Args:
        argument: name in the public signature.
        value: int or float, of Python or NumPy.
        positive: whether it must be above 0.
        remedy: what the caller can do, as the end of the message.

    Returns:
        The number as a Python float.

    Raises:
        ConfigError: it is a bool, traced, not a number, not finite in float32, or not positive
            where it must be.

    Example:
        >>> static_number("scale", np.float32(0.5))
        0.5
    """
    is_number = isinstance(value, int | float | np.integer | np.floating)
    largest = float(np.finfo(np.float32).max)
    # The value itself is compared, and not float(value), as an int may be too large for a float.
    fits = is_number and not isinstance(value, bool) and -largest <= value <= largest
    if not fits or (positive and value <= 0):
        rule = "a Python number, finite in float32"
        if positive:
            rule = "positive and finite in float32, known when traced"
        message = f"{argument} must be {rule}, got {value!r}"
        raise ConfigError(f"{message}; {remedy}" if remedy else message)
    return float(value)


def static_softcap(value: Any) -> float | None:
    """Checks a soft cap c, as in c * tanh(scores / c), that must be known when a program is traced.

    Args:
        value: the argument softcap: a positive int or float, or None for no cap.

    Returns:
        The cap as a Python float, or None.

    Raises:
        ConfigError: it is something else.

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
        value: int or float, of Python or NumPy, or a float array `[]`.

    Raises:
        ConfigError: it is something else, or, where it is known, negative or not finite.

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
