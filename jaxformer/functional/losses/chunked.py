"""Cross-entropy from hidden states in chunks of tokens, without holding all logits."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from einops import rearrange, unpack

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional import platforms
from jaxformer.functional.checks import (
    Array,
    as_array,
    check_choice,
    check_int,
    is_symbolic,
)
from jaxformer.functional.dtypes import at_least, widened
from jaxformer.functional.embedding import check_unembedding, unembed
from jaxformer.functional.linear import DEFAULT_PRODUCTS, Products
from jaxformer.functional.losses.cross_entropy import (
    IGNORED,
    REDUCTIONS,
    LossTerms,
    label_losses,
    read_labels,
    read_terms,
    reduce_losses,
)
from jaxformer.functional.sharding import varying_alike


def chunked_cross_entropy(
    hidden: jax.Array, table: jax.Array, labels: Array, bias: jax.Array | None = None,
    *, label_smoothing: float = 0.0, ignore_label: int | None = -1, z_loss: float = 0.0,
    softcap: float | None = None, chunk_size: int | None = None, reduction: str = "sum",
    products: Products = DEFAULT_PRODUCTS,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    r"""Cross-entropy loss of hidden states, `cross_entropy(unembed(table, hidden, bias), labels)`.

    Processes the tokens in chunks, so only one chunk of logits exists at a time. If derivatives are
    needed, each chunk computes its share while it has its logits, so nothing is computed twice;
    with the reduction "none", or with `products`, the backward pass computes the logits again.

    Gradients are accumulated in the dtype of the logits and rounded once, to the dtype of hidden or
    table; if the backward pass computes logits again, those of each chunk are rounded to the dtype
    of hidden. Hidden states with an ignored label have no effect, even if NaN or Inf.

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
        softcap: c in c * tanh(logits / c), which bounds the logits; None = no cap.
        chunk_size: tokens per chunk. None = on a CPU a sixteenth of the tokens, between 128 and
            1024; on accelerators as many as have 2^28 logits (1 GiB), at least 1024. None is
            required for a symbolic number of tokens (`jax.export`), and a sixteenth then.
        reduction: "sum" of all labels, or "none".
        products: precision and function of the product with the table.

    Returns:
        (loss_sum, weight_sum), or (losses, weights) `[...]` with the reduction "none", like
        `cross_entropy`, in float32 (float64 for float64).

    Raises:
        ShapeError: the shapes or dtypes do not fit.
        ConfigError: an option is invalid.
        DataError: a label whose value is known (not traced) is out of range.

    References:
        Hsu et al., "Liger Kernel: Efficient Triton Kernels for LLM Training", 2024 (chunks of
        tokens, gradients computed in the forward pass).

    Example:
        >>> hidden, table = jnp.ones((3, 2)), jnp.zeros((4, 2))
        >>> loss, weight = chunked_cross_entropy(hidden, table, jnp.array([0, 3, -1]))
        >>> round(float(loss), 4), float(weight)  # 2 ln 4
        (2.7726, 2.0)
    """
    hidden, table = as_array("hidden", hidden), as_array("table", table)
    bias = None if bias is None else as_array("bias", bias)
    terms = read_terms(label_smoothing, z_loss, softcap)
    vocab_size = check_unembedding("hidden", hidden, table, bias, products)
    if 0 in table.shape:
        raise ShapeError(f"table [V, D] must have a positive V and D, got shape {table.shape}")
    check_choice("reduction", reduction, REDUCTIONS)
    if chunk_size is not None:
        check_int("chunk_size", chunk_size, 1)
    labels = read_labels(labels, hidden.shape[:-1], vocab_size, ignore_label)
    counted = labels != IGNORED
    # Before the chunks, so that the gradients of these rows are 0 as well.
    hidden = jnp.where(counted[..., None], hidden, 0)

    num_chunks = _num_chunks(labels.size, vocab_size, chunk_size)
    chunks = (
        _in_chunks(rearrange(hidden, "... d -> (...) d"), num_chunks, padding=0),
        _in_chunks(rearrange(labels, "... -> (...)"), num_chunks, padding=IGNORED),
    )
    if reduction == "none" or products != DEFAULT_PRODUCTS:
        losses = _token_losses(terms, products, table, bias, *chunks)  # [chunks, I]
        losses = rearrange(losses, "chunks i -> (i chunks)")[: labels.size]
        (losses,) = unpack(losses, [labels.shape], "*")
        return reduce_losses(losses, counted, reduction)
    loss = _chunked_loss(terms, table, bias, *chunks)
    return loss, counted.sum(dtype=jnp.int32).astype(loss.dtype)


def _in_chunks(tokens: jax.Array, num_chunks: int, *, padding: int) -> jax.Array:
    """Arrays of tokens, `[N, ...]`, as `[chunks, I, ...]`, filled up with padding."""
    num_tokens = tokens.shape[0]
    size = -(-num_tokens // num_chunks)  # even chunks: less than one padding token in each
    widths = [(0, num_chunks * size - num_tokens)] + [(0, 0)] * (tokens.ndim - 1)
    tokens = jnp.pad(tokens, widths, constant_values=padding)
    # Strided, so that every chunk is spread over all devices that hold tokens.
    return rearrange(tokens, "(i chunks) ... -> chunks i ...", chunks=num_chunks)


def _num_chunks(num_tokens: int, vocab_size: int, chunk_size: int | None) -> int:
    """Number of chunks that the tokens are split into."""
    if is_symbolic(num_tokens):
        if chunk_size is not None:
            raise ConfigError(
                "chunk_size must be None where the number of tokens is symbolic, since a scan has "
                f"a fixed number of chunks, got chunk_size={chunk_size} and {num_tokens} tokens"
            )
        return 16
    if chunk_size is None:
        # A CPU wants a chunk in its cache. On an accelerator each chunk costs two passes over the
        # table's gradient in its memory.
        if platforms.default_platform() == "cpu":
            chunk_size = min(max(num_tokens // 16, 128), 1024)
        else:
            chunk_size = max(2**28 // (1 if is_symbolic(vocab_size) else vocab_size), 1024)
    return max(-(-num_tokens // chunk_size), 1)


def _token_losses(
    terms: LossTerms, products: Products, table: jax.Array, bias: jax.Array | None,
    hidden: jax.Array, labels: jax.Array,
) -> jax.Array:  # fmt: skip
    """Loss of each token `[chunks, I]`; the backward pass computes the logits of a chunk again."""
    table, bias, *chunks = varying_alike((table, bias, hidden, labels))
    wide = widened(table)  # so that its gradient is summed over the chunks in float32

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def chunk_losses(x: jax.Array, labels: jax.Array) -> jax.Array:
        logits = unembed(wide.astype(x.dtype), x, bias, products=products)  # [I, V]
        return label_losses(terms, logits, labels)

    return jax.lax.map(lambda chunk: chunk_losses(*chunk), tuple(chunks))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _chunked_loss(
    terms: LossTerms, table: jax.Array, bias: jax.Array | None, hidden: jax.Array, labels: jax.Array
) -> jax.Array:
    """Summed loss of hidden states `[chunks, I, D]` and their labels `[chunks, I]`."""
    return _scan_chunks(terms, (False, False, False), table, bias, hidden, labels)[0]


@functools.partial(_chunked_loss.defjvp, symbolic_zeros=True)
def _chunked_loss_jvp(terms: LossTerms, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    """Loss and its tangent, which is linear in the tangents, so reverse mode transposes it."""
    zero = jax.custom_derivatives.SymbolicZero
    differentiated = tuple(t is not None and not isinstance(t, zero) for t in tangents[:3])
    loss, gradients = _scan_chunks(terms, differentiated, *primals)
    tangent = jnp.zeros_like(loss)
    for gradient, direction in zip(gradients, tangents[:3], strict=True):
        if gradient is not None:
            tangent += jnp.sum(gradient * direction.astype(gradient.dtype))
    return loss, tangent


@functools.partial(jax.jit, static_argnums=(0, 1))  # so that an eager call compiles only once
def _scan_chunks(
    terms: LossTerms, differentiated: tuple[bool, ...],
    table: jax.Array, bias: jax.Array | None, hidden: jax.Array, labels: jax.Array,
) -> tuple[jax.Array, tuple[jax.Array | None, ...]]:  # fmt: skip
    """Summed loss, and its gradients by table, bias and hidden states, None if not requested."""
    # Under shard_map a loop's initial carry must already vary over all axes of its inputs.
    table, bias, hidden, labels = varying_alike((table, bias, hidden, labels))
    dtype, rows = at_least(hidden.dtype, jnp.float32), table.astype(hidden.dtype)  # [V, D]
    needs_table, needs_bias, needs_hidden = differentiated

    def step(sums: tuple[Any, Any], chunk: tuple[jax.Array, jax.Array]) -> Any:
        (table_grad, bias_grad), (x, labels), hidden_grad = sums, chunk, None
        logits = unembed(rows, x, bias)  # [I, V]
        loss, pull = jax.vjp(lambda z: label_losses(terms, z, labels).sum(), logits)
        (logits_grad,) = pull(jnp.ones_like(loss))  # [I, V]; unused ones are not computed
        if needs_hidden:
            hidden_grad = jnp.einsum("iv,vd->id", logits_grad, rows, preferred_element_type=dtype)
        if needs_table:
            table_grad += jnp.einsum("iv,id->vd", logits_grad, x, preferred_element_type=dtype)
        if needs_bias:
            bias_grad += logits_grad.sum(axis=0)  # [V]
        return (table_grad, bias_grad), (loss, hidden_grad)

    zeros = (
        jnp.zeros_like(table, dtype) if needs_table else None,
        jnp.zeros_like(table[:, 0], dtype) if needs_bias else None,
    )
    sums, (losses, hidden_grad) = jax.lax.scan(step, zeros, (hidden, labels))
    return losses.sum(), (*sums, hidden_grad)
