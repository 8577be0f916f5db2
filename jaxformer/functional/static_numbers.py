"""Pytrees whose arrays may be traced, and whose numbers, strings and functions are static."""

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

Kind = TypeVar("Kind", bound=type)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field,))
def static_numbers(cls: Kind) -> Kind:
    """Makes a class a frozen dataclass and a pytree; what a field holds decides if it is static."""
    # Attention skips blocks by ints. A jitted call of equal shapes and ints compiles only once.
    dataclasses.dataclass(frozen=True, eq=False)(cls)  # which returns the same class
    names = [field.name for field in dataclasses.fields(cls)]

    def flatten(instance: Any) -> tuple[list[Any], tuple]:
        values = [getattr(instance, name) for name in names]
        static = tuple(value if _is_static(value) else _CHILD for value in values)
        return [value for value in values if not _is_static(value)], static

    def unflatten(static: tuple, children: Any) -> Any:
        instance: Any = object.__new__(cls)
        remaining = iter(children)
        for name, value in zip(names, static, strict=True):
            object.__setattr__(instance, name, next(remaining) if value is _CHILD else value)
        return instance

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


_CHILD = "an array, or a pytree"


def _is_static(value: Any) -> bool:
    return isinstance(value, int | str | np.generic) or callable(value)
