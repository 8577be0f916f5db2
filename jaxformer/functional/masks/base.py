"""Rules of attention masks: what they have in common, and how they combine."""

import abc
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import Array, check_size
from jaxformer.functional.masks.checks import Integers, aligned
from jaxformer.functional.masks.tiles import Tile

Range = tuple[int, int]
"""First position, and the position after the last."""
Part = tuple[Range, Range]
"""Ranges of queries and of keys."""
Kind = TypeVar("Kind", bound="type[Mask]")


class Sizes(NamedTuple):
    """Axes that a rule must fit; without sizes, T and S are those of all tokens in a cache."""

    leading: tuple[int, ...]
    num_heads: int
    num_queries: int | None
    num_keys: int | None


class Mask(abc.ABC):
    """A rule that says which keys a query attends to; the base class of all rules.

    Rules are pytrees: their arrays are leaves and may be traced, their ints and functions are
    static. Chunked attention and kernels skip blocks that ints hide.
    """

    __array_ufunc__ = None  # NumPy leaves `array & rule` to the rule

    def array(self, num_queries: int, num_keys: int, leading: tuple[int, ...] = ()) -> jax.Array:
        """The rule as an array.

        Args:
            num_queries: T.
            num_keys: S.
            leading: leading axes, such as (B,), if an array of the rule has them.

        Returns:
            bool `[T, S]`, or `[*leading, 1, T, S]`.

        Raises:
            ShapeError: a size or an argument of the rule does not fit.
        """
        num_queries = check_size("num_queries", num_queries, least=0)
        num_keys = check_size("num_keys", num_keys, least=0)
        rule = self.checked(Sizes(leading, 1, num_queries, num_keys))
        allowed = rule.allows(Tile((0, num_queries), (0, num_keys), leading))
        allowed = jnp.broadcast_to(allowed, (*leading, 1, num_queries, num_keys))
        return allowed if leading else allowed[0]

    @abc.abstractmethod
    def checked(self, sizes: Sizes) -> "Mask":
        """The same rule made of windows, lengths, segments, arrays and functions that fit."""

    @abc.abstractmethod
    def allows(self, tile: Tile) -> jax.Array:
        """The mask of a tile, bool `[..., N, t, s]`, size 1 along axes where it does not vary."""

    def visible_part(self, queries: Range, keys: Range) -> Part:
        """Ranges outside of which no query sees a key; ignores what is traced."""
        return queries, keys

    def hidden_part(self, queries: Range, keys: Range) -> Part:
        """Ranges outside of which every query sees every key; ignores what is traced."""
        return queries, keys

    def __and__(self, other: "AnyMask") -> "Mask":
        return And((self, as_rule(other)))

    def __or__(self, other: "AnyMask") -> "Mask":
        return Or((self, as_rule(other)))

    def __invert__(self) -> "Mask":
        return Not(self)

    __rand__, __ror__ = __and__, __or__


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field,))
def mask_rule(cls: Kind) -> Kind:
    """Makes a class of rules a frozen dataclass and a pytree."""
    dataclasses.dataclass(frozen=True, eq=False)(cls)  # which returns the same class
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    def flatten(mask: Mask) -> tuple[list[Any], tuple]:
        values = [getattr(mask, name) for name in names]
        static = tuple(value if _is_static(value) else _LEAF for value in values)
        return [value for value in values if not _is_static(value)], static

    def unflatten(static: tuple, leaves: Any) -> Any:
        mask, remaining = object.__new__(cls), iter(leaves)
        for name, value in zip(names, static, strict=True):
            object.__setattr__(mask, name, next(remaining) if value is _LEAF else value)
        return mask

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


_LEAF = "an array, or rules"


def _is_static(value: Any) -> bool:
    return value is None or isinstance(value, int | str | np.generic) or callable(value)


@mask_rule
class ArrayMask(Mask):
    """A boolean array: `[T, S]`, or of the rank of `[..., N, T, S]` and broadcastable to it."""

    values: Array

    def checked(self, sizes: Sizes) -> Mask:
        if sizes.num_queries is None or sizes.num_keys is None:
            raise not_in_cache("an array")
        shape = (*sizes.leading, sizes.num_heads, sizes.num_queries, sizes.num_keys)
        return ArrayMask(aligned("mask", self.values, "bool", shape))

    def allows(self, tile: Tile) -> jax.Array:
        return tile.block_of(jnp.asarray(self.values))


@mask_rule
class And(Mask):
    """Keys that every rule allows."""

    rules: tuple[Mask, ...]

    def checked(self, sizes: Sizes) -> Mask:
        return And(tuple(_flat(rule.checked(sizes) for rule in self.rules)))

    def allows(self, tile: Tile) -> jax.Array:
        return functools.reduce(operator.and_, (rule.allows(tile) for rule in self.rules))

    def visible_part(self, queries: Range, keys: Range) -> Part:
        return _common((rule.visible_part for rule in self.rules), queries, keys)

    def hidden_part(self, queries: Range, keys: Range) -> Part:
        return hull(rule.hidden_part(queries, keys) for rule in self.rules)


@mask_rule
class Or(Mask):
    """Keys that some rule allows."""

    rules: tuple[Mask, ...]

    def checked(self, sizes: Sizes) -> Mask:
        return Or(tuple(rule.checked(sizes) for rule in self.rules))

    def allows(self, tile: Tile) -> jax.Array:
        return functools.reduce(operator.or_, (rule.allows(tile) for rule in self.rules))

    def visible_part(self, queries: Range, keys: Range) -> Part:
        return hull(rule.visible_part(queries, keys) for rule in self.rules)

    def hidden_part(self, queries: Range, keys: Range) -> Part:
        return _common((rule.hidden_part for rule in self.rules), queries, keys)


@mask_rule
class Not(Mask):
    """Keys that a rule hides."""

    rule: Mask

    def checked(self, sizes: Sizes) -> Mask:
        return Not(self.rule.checked(sizes))

    def allows(self, tile: Tile) -> jax.Array:
        return ~self.rule.allows(tile)

    def visible_part(self, queries: Range, keys: Range) -> Part:
        return self.rule.hidden_part(queries, keys)

    def hidden_part(self, queries: Range, keys: Range) -> Part:
        return self.rule.visible_part(queries, keys)


@mask_rule
class Moved(Mask):
    """A rule of positions, for queries and keys that start at others, int or integer `[...]`."""

    rule: Mask
    queries: Integers
    keys: Integers

    def checked(self, sizes: Sizes) -> Mask:
        rule = self.rule.checked(sizes._replace(num_queries=None, num_keys=None))
        return Moved(rule, self.queries, self.keys)

    def allows(self, tile: Tile) -> jax.Array:
        (query, num_queries), (key, num_keys) = tile.queries, tile.keys
        moved: Any = (query + self.queries, num_queries), (key + self.keys, num_keys)
        return self.rule.allows(tile._replace(queries=moved[0], keys=moved[1]))


AnyMask = Array | Mask
"""A mask as an array or as a rule."""


def as_rule(mask: AnyMask) -> Mask:
    """A mask, if it is an array, as a rule."""
    return mask if isinstance(mask, Mask) else ArrayMask(mask)


def has_array(mask: AnyMask | None) -> bool:
    """Whether a mask is an array, or a rule that is combined with one."""
    parts = jax.tree.leaves(mask, is_leaf=lambda part: isinstance(part, ArrayMask))
    in_rule = any(isinstance(part, ArrayMask) for part in parts)
    return in_rule or not isinstance(mask, Mask | None)


def all_rules(*masks: AnyMask | None) -> Mask | None:
    """The rule that all masks allow; None is skipped."""
    rules = tuple(_flat(as_rule(mask) for mask in masks if mask is not None))
    return And(rules) if len(rules) > 1 else next(iter(rules), None)


def _flat(rules: Iterable[Mask]) -> Iterator[Mask]:
    for rule in rules:
        yield from rule.rules if isinstance(rule, And) else (rule,)


def hull(parts: Iterable[Part]) -> Part:
    """The smallest ranges around all parts; empty without any."""
    parts = [part for part in parts if not is_empty(*part)]
    if not parts:
        return (0, 0), (0, 0)
    return tuple(  # type: ignore[return-value]
        (min(first for first, _ in ranges), max(last for _, last in ranges))
        for ranges in zip(*parts, strict=True)
    )


def _common(narrow: Iterable[Callable[[Range, Range], Part]], queries: Range, keys: Range) -> Part:
    """The ranges that all functions leave of these."""
    for function in [*narrow] * 2:  # fewer queries may see fewer keys by an earlier rule
        queries, keys = function(queries, keys)
    return queries, keys


def is_empty(queries: Range, keys: Range) -> bool:
    """Whether one of two ranges is empty."""
    return queries[0] >= queries[1] or keys[0] >= keys[1]


def not_in_cache(what: str) -> ShapeError:
    """Error for a part of a rule that does not go with a cache."""
    return ShapeError(
        f"with a cache, a rule must say what is visible by positions, got {what} for some tokens; "
        "pass the mask as an array of all slots of the cache"
    )
