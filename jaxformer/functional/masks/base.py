"""Rules of attention masks: what they have in common, and how they combine."""

import abc
import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.errors import ShapeError
from jaxformer.functional.checks import Array, check_size
from jaxformer.functional.masks.checks import Integers, aligned
from jaxformer.functional.masks.tiles import Tile
from jaxformer.functional.static_numbers import static_numbers

Part = tuple[range, range]
"""Positions of queries and of keys."""


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

    def visible_part(self, queries: range, keys: range) -> Part:
        """Ranges outside of which no query sees a key; ignores what is traced."""
        return queries, keys

    def __and__(self, other: "AnyMask") -> "Mask":
        return And((self, as_rule(other)))

    def __or__(self, other: "AnyMask") -> "Mask":
        return Or((self, as_rule(other)))

    def __invert__(self) -> "Mask":
        return Not(self)

    __rand__, __ror__ = __and__, __or__


@static_numbers
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


@static_numbers
class And(Mask):
    """Keys that every rule allows."""

    rules: tuple[Mask, ...]

    def checked(self, sizes: Sizes) -> Mask:
        return And(tuple(_flat(rule.checked(sizes) for rule in self.rules)))

    def allows(self, tile: Tile) -> jax.Array:
        return functools.reduce(operator.and_, (rule.allows(tile) for rule in self.rules))

    def visible_part(self, queries: range, keys: range) -> Part:
        for rule in self.rules * 2:  # fewer queries may see fewer keys by an earlier rule
            queries, keys = rule.visible_part(queries, keys)
        return queries, keys


@static_numbers
class Or(Mask):
    """Keys that some rule allows."""

    rules: tuple[Mask, ...]

    def checked(self, sizes: Sizes) -> Mask:
        return Or(tuple(rule.checked(sizes) for rule in self.rules))

    def allows(self, tile: Tile) -> jax.Array:
        return functools.reduce(operator.or_, (rule.allows(tile) for rule in self.rules))

    def visible_part(self, queries: range, keys: range) -> Part:
        parts = [rule.visible_part(queries, keys) for rule in self.rules]
        parts = [part for part in parts if all(part)]
        if not parts:
            return range(0), range(0)
        queries, keys = (
            range(min(part.start for part in ranges), max(part.stop for part in ranges))
            for ranges in zip(*parts, strict=True)
        )
        return queries, keys


@static_numbers
class Not(Mask):
    """Keys that a rule hides."""

    rule: Mask

    def checked(self, sizes: Sizes) -> Mask:
        return Not(self.rule.checked(sizes))

    def allows(self, tile: Tile) -> jax.Array:
        return ~self.rule.allows(tile)


@static_numbers
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


def arrays_of(mask: Any) -> list[Array]:
    """Arrays that a rule, or several, are made of; other rules have numbers by position."""
    parts = jax.tree.leaves(mask, is_leaf=lambda part: isinstance(part, ArrayMask))
    return [part.values for part in parts if isinstance(part, ArrayMask)]


def has_array(mask: AnyMask | None) -> bool:
    """Whether a mask is an array, or a rule that is combined with one."""
    return not isinstance(mask, Mask | None) or bool(arrays_of(mask))


def map_rules(kind: type[Mask], function: Callable[[Any], Any], mask: Any) -> Any:
    """The mask with the results of a function of the rules of one class that it is made of."""

    def is_of_kind(part: object) -> bool:
        return isinstance(part, kind)

    return jax.tree.map(lambda x: function(x) if is_of_kind(x) else x, mask, is_leaf=is_of_kind)


def all_rules(*masks: AnyMask | None) -> Mask | None:
    """The rule that all masks allow; None is skipped."""
    rules = tuple(_flat(as_rule(mask) for mask in masks if mask is not None))
    return And(rules) if len(rules) > 1 else next(iter(rules), None)


def _flat(rules: Iterable[Mask]) -> Iterator[Mask]:
    for rule in rules:
        yield from rule.rules if isinstance(rule, And) else (rule,)


def not_in_cache(what: str) -> ShapeError:
    """Error for a part of a rule that does not go with a cache."""
    return ShapeError(
        f"with a cache, a rule must say what is visible by positions, got {what} for some tokens; "
        "pass the mask as an array of all slots of the cache"
    )
