"""Cross-entropy from hidden states in chunks of tokens, without holding all logits."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from einops import rearrange

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional import platforms
from jaxformer.functional.checks import (
    Array,
    as_array,
    check_axes,
    check_dtype,
    is_int,
    is_symbolic,
    static_number,
)
from jaxformer.functional.dtypes import at_least
from jaxformer.functional.losses.chunk import Chunk, Gradients, loss_and_gradients
from jaxformer.functional.losses.cross_entropy import LossTerms, read_labels, read_terms
from jaxformer.functional.sharding import is_one_device

# Largest D by kind of device: a logit is computed again, in 2 D FLOPs, before its 4 bytes are read.
# A TPU v6e has 560 FLOPs a byte (918 TFLOPS, 1,638 GB/s). It keeps a block of so many logits in its
# vector memory, and the gradient of the hidden states of so many tokens, in float32.
_COMPUTED_TWICE = {"TPU v6 lite": 1120, "TPU v6e": 1120}
_BLOCK_LOGITS, _CHUNK_TOKENS = 2**22, 8192


def chunked_cross_entropy(
    hidden: jax.Array, table: jax.Array, labels: Array, bias: jax.Array | None = None,
    *, label_smoothing: float = 0.0, ignore_label: int | None = -1, z_loss: float = 0.0,
    scale: float | None = None, softcap: float | None = None, chunk_size: int | None = None,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    r"""Cross-entropy loss of hidden states, `cross_entropy(unembed(table, hidden, bias), labels)`.

    Processes the tokens in chunks, so only one chunk of logits exists at a time. If derivatives are
    needed, each chunk computes its share while it has its logits, so nothing is computed twice.

    A TPU v6e is an exception, with a D of at most 1,120, chunks of at most 8,192 tokens, and in a
    program for one device (mapped, or with one device only): there a chunk goes through the
    vocabulary in blocks that fit into the vector memory. No logits are written to HBM. As the
    normalizer is known only after the last block, derivatives need all of them a second time, which
    is faster than HBM.

    Equal to `cross_entropy` up to rounding, because the order of summation differs. Gradients are
    accumulated in the dtype of the logits and rounded once, to the dtype of hidden or table. Hidden
    states with an ignored label have no effect, even if NaN or Inf: their gradient is 0, and they
    add 0 to the table's (with dense logits, they add 0 * NaN).

    If jit shards the tokens automatically, the table's gradient is summed over devices once per
    chunk. In a mapped function it is summed at most once.

    Args:
        hidden: float `[..., D]`.
        table: float `[V, D]`.
        labels: integer `[...]`, each in 0 .. V-1 or `ignore_label`.
        bias: float `[V]`, added to the logits.
        label_smoothing: share of the target spread evenly over the vocabulary, in [0, 1).
        ignore_label: label that adds neither loss nor weight; None = no such label.
        z_loss: weight of $(\log Z)^2$.
        scale: factor of the hidden states, and so of the logits before the bias; 1 when not given.
        softcap: c in c * tanh(logits / c), which bounds the logits; None = no cap.
        chunk_size: tokens per chunk. None = on a CPU a sixteenth of the tokens, between 128 and
            1024; on accelerators as many as have 2^28 logits (1 GiB), at least 1024, and 8192 with
            blocks of the vocabulary. Smaller chunks read and write the table's gradient too often;
            larger ones hold too much. Must be None if the number of tokens is symbolic
            (`jax.export`); a chunk is then exactly a sixteenth.

    Returns:
        (loss_sum, weight_sum), like `cross_entropy`, in float32 (float64 for float64).

    Raises:
        ShapeError: the shapes or dtypes do not fit.
        ConfigError: an option is invalid.
        DataError: a label whose value is known (not traced) is out of range.

    References:
        Hsu et al., "Liger Kernel: Efficient Triton Kernels for LLM Training", 2024 (chunks of
        tokens, gradients computed in the forward pass); Wijmans et al., "Cut Your Losses in
        Large-Vocabulary Language Models", 2024 (blocks of the vocabulary, logits computed twice).

    Example:
        >>> hidden, table = jnp.ones((3, 2)), jnp.zeros((4, 2))
        >>> loss, weight = chunked_cross_entropy(hidden, table, jnp.array([0, 3, -1]))
        >>> round(float(loss), 4), float(weight)  # 2 ln 4
        (2.7726, 2.0)
    """
    hidden, table = as_array("hidden", hidden), as_array("table", table)
    terms = read_terms(label_smoothing, z_loss, softcap)
    sizes = check_axes("table", table, "V D")
    if sizes["V"] == 0 or sizes["D"] == 0:
        raise ShapeError(f"table [V, D] must have a positive V and D, got shape {table.shape}")
    check_dtype("table", table, "floating", remedy="cast it with .astype")
    check_dtype("hidden", hidden, "floating", remedy="cast it with .astype")
    check_axes("hidden", hidden, "... D", {"D": sizes["D"]}, remedy="D is the table's width")
    if chunk_size is not None and not is_int(chunk_size, 1):
        raise ConfigError(
            f"chunk_size must be a positive number of tokens, got {chunk_size!r}; None = a "
            "sixteenth"
        )
    labels, counted = read_labels(labels, "hidden [..., D]", hidden, sizes["V"], ignore_label)
    if bias is not None:
        bias = as_array("bias", bias)
        check_axes("bias", bias, "V", sizes, remedy="V is the table's height")
        check_dtype("bias", bias, "floating")
    # Before the chunks, so that the gradients of these rows are 0 as well.
    hidden = jnp.where(counted[..., None], hidden, 0)
    if scale is not None:
        hidden = hidden * static_number("scale", scale, positive=True)

    tokens = labels.size
    chunks, height = _chunks_and_height(tokens, sizes["V"], sizes["D"], chunk_size)
    size = -(-tokens // chunks)  # even chunks: less than one padding token in each
    fill = chunks * size - tokens

    def in_chunks(x: jax.Array, axes: str = "") -> jax.Array:
        flat = rearrange(x, f"... {axes} -> (...) {axes}")
        flat = jnp.pad(flat, ((0, fill), *((0, 0) for _ in flat.shape[1:])))
        # Strided, so that every chunk is spread over all devices that hold tokens.
        return rearrange(flat, "(size chunks) ... -> chunks size ...", chunks=chunks)

    loss = _chunked_loss(
        terms, height, in_chunks(hidden, "d"), table, bias, in_chunks(labels), in_chunks(counted)
    )
    return loss, counted.sum(dtype=jnp.int32).astype(loss.dtype)


def _chunks_and_height(
    tokens: int, vocab_size: int, width: int, chunk_size: int | None
) -> tuple[int, int | None]:
    """Number of chunks, and rows of the table in a block; None = all in one."""
    if is_symbolic(tokens):
        if chunk_size is not None:
            raise ConfigError(
                "chunk_size must be None where the number of tokens is symbolic, since a scan has "
                f"a fixed number of chunks, got chunk_size={chunk_size} and {tokens} tokens"
            )
        return 16, None
    if chunk_size is None:
        # A CPU wants a chunk in its cache. On an accelerator each chunk costs two passes over the
        # table's gradient in its memory.
        if platforms.default_platform() == "cpu":
            chunk_size = min(max(tokens // 16, 128), 1024)
        elif _block_height(min(tokens, _CHUNK_TOKENS), vocab_size, width) is not None:
            chunk_size = _CHUNK_TOKENS
        else:
            known = 1 if is_symbolic(vocab_size) else vocab_size
            chunk_size = max(2**28 // known, 1024)
    chunks = max(-(-tokens // chunk_size), 1)
    return chunks, _block_height(-(-tokens // chunks), vocab_size, width)


def _block_height(tokens: int, vocab_size: int, width: int) -> int | None:
    """Rows of the table in a block, whose logits are computed twice; None = all, computed once."""
    largest = _COMPUTED_TWICE.get(platforms.default_device_kind(), 0)
    if is_symbolic(vocab_size, width) or width > largest or tokens > _CHUNK_TOKENS:
        return None
    if not is_one_device():  # jit may split the table, and a block would be on one of the devices
        return None
    height = _BLOCK_LOGITS // max(tokens, 128) // 128 * 128  # a TPU's lanes
    return height if height < vocab_size else None


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _chunked_loss(
    terms: LossTerms, height: int | None,
    hidden: jax.Array, table: jax.Array, bias: jax.Array | None,
    labels: jax.Array, counted: jax.Array,
) -> jax.Array:  # fmt: skip
    """Summed loss of hidden states `[chunks, size, D]`; height as in `_chunks_and_height`."""
    none = (False, False, False)
    return _scan_chunks(terms, height, none, hidden, table, bias, labels, counted)[0]


@functools.partial(_chunked_loss.defjvp, symbolic_zeros=True)
def _chunked_loss_jvp(
    terms: LossTerms, height: int | None, primals: Any, tangents: Any
) -> tuple[jax.Array, jax.Array]:
    """Loss and its tangent, which is linear in the tangents, so reverse mode transposes it."""
    zero = jax.custom_derivatives.SymbolicZero
    differentiated = tuple(t is not None and not isinstance(t, zero) for t in tangents[:3])
    loss, gradients = _scan_chunks(terms, height, differentiated, *primals)
    tangent = jnp.zeros_like(loss)
    for gradient, direction in zip(gradients, tangents[:3], strict=True):
        if gradient is not None:
            tangent += jnp.sum(gradient * direction.astype(gradient.dtype))
    return loss, tangent


@functools.partial(jax.jit, static_argnums=(0, 1, 2))  # so that an eager call compiles only once
def _scan_chunks(
    terms: LossTerms, height: int | None, differentiated: tuple[bool, ...],
    hidden: jax.Array, table: jax.Array, bias: jax.Array | None,
    labels: jax.Array, counted: jax.Array,
) -> tuple[jax.Array, tuple[jax.Array | None, ...]]:  # fmt: skip
    """Summed loss and the requested gradients (hidden, table, bias), in the loss dtype."""
    dtype, rows = at_least(hidden.dtype, jnp.float32), table.astype(hidden.dtype)
    # Under shard_map a loop's initial carry must already vary over all axes of its inputs.
    inputs = (hidden, table, labels) if bias is None else (hidden, table, labels, bias)
    zeros_of = (jnp.zeros_like(x, shape=(), dtype=dtype) for x in inputs)
    zero = sum(zeros_of, jnp.zeros((), dtype))

    def zeros(is_differentiated: bool, like: jax.Array) -> jax.Array | None:
        return jnp.broadcast_to(zero, like.shape) if is_differentiated else None

    def step(of_weights: Gradients, tokens: tuple[jax.Array, ...]) -> Any:
        chunk = Chunk(terms, rows, bias, *tokens)
        start = (zeros(differentiated[0], chunk.hidden), *of_weights)
        loss, (of_hidden, *added) = loss_and_gradients(chunk, height, start, zero)
        return tuple(added), (loss, of_hidden)

    start = (zeros(differentiated[1], table), zeros(differentiated[2], table[:, 0]))
    tokens = (hidden, labels, counted, jnp.zeros(hidden.shape[0], jnp.int32))
    of_weights, (losses, of_hidden) = jax.lax.scan(step, start, tokens)
    return losses.sum(), (of_hidden, *of_weights)
