"""Loss and gradients of a chunk of tokens, from all of its logits or from blocks of them."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from jaxformer.functional.checks import is_symbolic
from jaxformer.functional.embedding import unembed
from jaxformer.functional.losses.cross_entropy import (
    LogitStatistics,
    LossTerms,
    label_losses,
    take_label,
)

Carry = TypeVar("Carry")
Gradients = tuple[jax.Array | None, ...]
"""For hidden `[I, D]`, table `[V, D]` and bias `[V]`, in the loss dtype; None if not requested."""


class Block(NamedTuple):
    """Rows of the table, `height` of them from start; `new` is None for the whole vocabulary."""

    start: jax.Array | int
    height: int
    # [height], False where the block before had the same row: the last block starts early to be as
    # high as the others.
    new: jax.Array | None

    def part(self, array: jax.Array, axis: int = 0) -> jax.Array:
        """Part of an array whose axis is the vocabulary."""
        # Without a slice of all, jit need not gather an array that it splits over devices.
        if self.new is None:
            return array
        return jax.lax.dynamic_slice_in_dim(array, self.start, self.height, axis)

    def replaced(self, array: jax.Array, part: jax.Array) -> jax.Array:
        """The array `[V, ...]` with its rows of this block replaced."""
        if self.new is None:
            return part
        return jax.lax.dynamic_update_slice_in_dim(array, part, self.start, axis=0)

    def only_new(self, columns: jax.Array) -> jax.Array:
        """Finite `[I, height]`, 0 where the block before had the column."""
        # No jnp.where: XLA for CPUs would hold an array of zeros ahead of the loops.
        return columns if self.new is None else columns * self.new.astype(columns.dtype)[None]

    def total(self, columns: jax.Array) -> jax.Array:
        """Sum `[I]` of the columns `[I, height]` that the block before did not have."""
        return jnp.sum(columns, -1, where=None if self.new is None else self.new[None])

    def has_label(self, labels: jax.Array) -> jax.Array:
        """Whether a column is that of the label: bool `[I, height]`, at most one in all blocks."""
        columns = jnp.arange(self.height, dtype=labels.dtype)
        is_label = (labels - jnp.asarray(self.start, labels.dtype))[:, None] == columns[None]
        return is_label if self.new is None else is_label & self.new[None]

    def label_logits(self, logits: jax.Array, labels: jax.Array) -> jax.Array:
        """Logits of the labels `[I]`; 0 for those of other blocks."""
        if self.new is None:
            return take_label(logits, labels.clip(0, self.height - 1))
        return jnp.sum(logits, -1, where=self.has_label(labels))


def _fold(
    vocab_size: int, height: int | None, step: Callable[[Block, Carry], Carry], carry: Carry,
    origin: jax.Array | int = 0,
) -> Carry:  # fmt: skip
    """Folds a step over blocks of the vocabulary from an origin of 0; None = a single block."""
    if height is None or height == vocab_size:
        return step(Block(0, vocab_size, None), carry)

    def body(i: jax.Array, carry: Carry) -> Carry:
        start = jnp.asarray(origin, i.dtype) + jnp.minimum(i * height, vocab_size - height)
        return step(Block(start, height, start + jnp.arange(height) >= i * height), carry)

    return jax.lax.fori_loop(0, -(-vocab_size // max(height, 1)), body, carry)


class Chunk(NamedTuple):
    """A chunk of tokens `[I]`, and what their logits come from, or all of their logits."""

    terms: LossTerms
    rows: jax.Array
    bias: jax.Array | None
    hidden: jax.Array
    labels: jax.Array
    counted: jax.Array
    # 0. From a loop over chunks, JAX takes out what depends on no chunk, and stacks it: without a
    # start that comes from the chunk, copies of all blocks of the table.
    origin: jax.Array
    all_logits: jax.Array | None = None

    def logits(self, block: Block) -> jax.Array:
        """Logits `[I, height]` after the soft cap."""
        if self.all_logits is not None:
            return block.part(self.all_logits, axis=1)
        bias = None if self.bias is None else block.part(self.bias)
        return unembed(block.part(self.rows), self.hidden, bias, softcap=self.terms.softcap)

    def loss(self, statistics: LogitStatistics) -> jax.Array:
        """Summed loss."""
        vocab_size = self.rows.shape[0]
        return label_losses(self.terms, statistics, self.labels, self.counted, vocab_size).sum()


def loss_and_gradients(
    chunk: Chunk, height: int | None, gradients: Gradients, zero: jax.Array
) -> tuple[jax.Array, Gradients]:
    """Summed loss of a chunk, and gradients with its share added."""
    # With a height, logits are computed in blocks of so many rows of the table, once for the loss
    # and once for the gradients. `zero` varies as all inputs together do, under shard_map.
    if height is None:
        chunk = chunk._replace(all_logits=chunk.logits(Block(0, chunk.rows.shape[0], None)))
    statistics = _statistics(chunk, height, zero)
    loss, pull = jax.vjp(chunk.loss, statistics)
    if all(gradient is None for gradient in gradients):
        return loss, gradients
    (by_statistics,) = pull(jnp.ones_like(loss))
    return loss, _add_gradients(chunk, height, statistics, by_statistics, gradients)


def _statistics(chunk: Chunk, height: int | None, zero: jax.Array) -> LogitStatistics:
    """Statistics over the vocabulary; exponentials are relative to the largest logit so far."""
    limits, is_smooth = jnp.finfo(zero.dtype), bool(chunk.terms.label_smoothing)

    def add(block: Block, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        maximum, exponentials, label, total = carry
        logits = chunk.logits(block)
        # It is finite, so that logits of +-Inf are not subtracted from themselves. It cancels out
        # of the result, so it needs no derivative.
        larger = jnp.maximum(maximum, logits.max(-1)).clip(max=limits.max)
        larger = jax.lax.stop_gradient(larger)
        shares = block.total(jnp.exp(logits - larger[:, None]))
        exponentials = exponentials * jnp.exp(maximum - larger) + shares
        label += block.label_logits(logits, chunk.labels)
        return larger, exponentials, label, total + block.total(logits) if is_smooth else total

    start, vocab_size = jnp.broadcast_to(zero, chunk.labels.shape), chunk.rows.shape[0]
    carry: tuple[jax.Array, ...] = (start + limits.min, start, start, start)
    carry = _fold(vocab_size, height, add, carry, chunk.origin)
    maximum, exponentials, label, total = carry
    return LogitStatistics(maximum + jnp.log(exponentials), label, total / vocab_size)


def _add_gradients(
    chunk: Chunk, height: int | None, statistics: LogitStatistics, by_statistics: LogitStatistics,
    gradients: Gradients,
) -> Gradients:  # fmt: skip
    """Adds a chunk's gradients, given those of its loss by its statistics; None stays None."""
    vocab_size = chunk.rows.shape[0]
    by_normalizer, by_label, by_mean = (column[:, None] for column in by_statistics)

    def add(block: Block, gradients: Gradients) -> Gradients:
        of_hidden, of_table, of_bias = gradients
        with jax.named_scope("rematted_computation"):  # as remat names it: not of the model's FLOPs
            logits = chunk.logits(block)
        by_logits = by_normalizer * jnp.exp(logits - statistics.log_normalizer[:, None])
        if chunk.terms.label_smoothing:
            by_logits += by_mean / vocab_size
        by_logits = block.only_new(by_logits)
        by_logits += by_label * block.has_label(chunk.labels).astype(by_logits.dtype)
        if chunk.terms.softcap is not None:
            by_logits *= 1 - jnp.square(logits / chunk.terms.softcap)
        if of_hidden is not None:
            rows, wide = block.part(chunk.rows), by_logits.dtype
            of_hidden += jnp.einsum("iv,vd->id", by_logits, rows, preferred_element_type=wide)
        if of_table is not None:
            added = _add_product(block.part(of_table), by_logits, chunk.hidden)
            of_table = block.replaced(of_table, added)
        if of_bias is not None:
            added = block.part(of_bias) + by_logits.sum(axis=0)
            of_bias = block.replaced(of_bias, added)
        return of_hidden, of_table, of_bias

    return _fold(vocab_size, height, add, gradients, chunk.origin)


def _add_product(total: jax.Array, by_logits: jax.Array, x: jax.Array) -> jax.Array:
    """Adds `by_logits.T @ x` `[V, D]` in blocks about half as large as `by_logits`."""
    (vocab_size, width), size = total.shape, x.shape[0]
    # At most 32: with few tokens per chunk, more blocks would make the products too small.
    blocks = 32 if is_symbolic(size, width) else min(-(-2 * width // max(size, 1)), 32)

    def add(block: Block, total: jax.Array) -> jax.Array:
        part = block.only_new(block.part(by_logits, axis=1))
        product = jnp.einsum("iv,id->vd", part, x, preferred_element_type=total.dtype)
        return block.replaced(total, block.part(total) + product)

    return _fold(vocab_size, -(-vocab_size // max(blocks, 1)), add, total)
