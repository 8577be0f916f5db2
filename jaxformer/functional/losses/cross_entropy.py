"""Cross-entropy over a vocabulary, as sums instead of means."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import ConfigError, DataError, ShapeError
from jaxformer.functional.checks import (
    Array,
    as_array,
    check_array,
    check_choice,
    check_dtype,
    is_int,
    known_values,
    static_number,
    static_softcap,
)
from jaxformer.functional.dtypes import as_int32, widened

REDUCTIONS = ("sum", "none")
IGNORED, INVALID = -1, -2
"""What `read_labels` puts in place of labels that do not count, and of those out of range."""


class LossTerms(NamedTuple):
    """Options of the cross-entropy loss; hashable, for use as a static argument."""

    label_smoothing: float
    z_loss: float
    softcap: float | None = None


def cross_entropy(
    logits: jax.Array, labels: Array,
    *, label_smoothing: float = 0.0, ignore_label: int | None = -1, z_loss: float = 0.0,
    reduction: str = "sum",
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    r"""Cross-entropy loss as (sum, weight), in nats; or the loss of each label.

    With $Z = \sum_v e^{\mathrm{logits}_v}$ and smoothing $s$, each label adds
    $(1 - s)(\log Z - \mathrm{logits}_{label}) + s (\log Z - \mathrm{mean}_v
    \mathrm{logits}_v) + z (\log Z)^2$.

    The results are sums, not means, so losses of shards, micro-batches and padded batches add up
    exactly. Divide the summed loss by the summed weight once, at the end.

    Args:
        logits: float `[..., V]`; the loss is computed in float32 (float64 for float64).
        labels: integer `[...]`, each in 0 .. V-1 or `ignore_label`.
        label_smoothing: share of the target spread evenly over the vocabulary, in [0, 1).
        ignore_label: label that adds neither loss nor weight; None = no such label.
        z_loss: weight of $(\log Z)^2$, which keeps logits from drifting.
        reduction: "sum" of all labels, or "none".

    Returns:
        (loss_sum, weight_sum): two scalars; weight_sum is the number of labels counted. With the
        reduction "none", (losses, weights): two arrays `[...]`, and both are 0 for an ignored
        label. A traced label out of range cannot raise an error and makes its loss NaN.

    Raises:
        ShapeError: the shapes or dtypes do not fit.
        ConfigError: an option is invalid.
        DataError: a label whose value is known (not traced) is out of range.

    References:
        Szegedy et al., "Rethinking the Inception Architecture", 2016 (label smoothing);
        Chowdhery et al., "PaLM", 2022 (z-loss).

    Example:
        >>> loss, weight = cross_entropy(jnp.zeros((3, 4)), jnp.array([0, 3, -1]))
        >>> round(float(loss), 4), float(weight)  # 2 ln 4
        (2.7726, 2.0)
    """
    logits, terms = as_array("logits", logits), read_terms(label_smoothing, z_loss)
    check_choice("reduction", reduction, REDUCTIONS)
    vocab_size = check_array("logits", logits, "floating", "... V")["V"]
    if vocab_size == 0:
        raise ShapeError(f"logits [..., V] must have a positive V, got shape {logits.shape}")
    labels = read_labels(labels, logits.shape[:-1], vocab_size, ignore_label)
    # Ignored logits may be NaN, and their gradient, 0 * NaN, would be NaN too.
    counted = labels != IGNORED
    wide = jnp.where(counted[..., None], widened(logits), 0)  # [..., V]
    return reduce_losses(label_losses(terms, wide, labels), counted, reduction)


def reduce_losses(
    losses: jax.Array, counted: jax.Array, reduction: str
) -> tuple[jax.Array, jax.Array]:
    """Losses and weights of labels `[...]`, or their sums."""
    if reduction == "none":
        return losses, counted.astype(losses.dtype)
    return losses.sum(), counted.sum(dtype=jnp.int32).astype(losses.dtype)


def read_terms(label_smoothing: float, z_loss: float, softcap: float | None = None) -> LossTerms:
    """Checks the options of a loss; raises ConfigError if one is invalid."""
    terms = LossTerms(
        label_smoothing=static_number("label_smoothing", label_smoothing),
        z_loss=static_number("z_loss", z_loss),
        softcap=static_softcap(softcap),
    )
    if not 0 <= terms.label_smoothing < 1:
        raise ConfigError(f"label_smoothing must be in [0, 1), got {label_smoothing}")
    if terms.z_loss < 0:
        raise ConfigError(f"z_loss must be zero or more, got {z_loss}")
    return terms


def read_labels(
    labels: Array, leading: tuple[int, ...], vocab_size: int, ignore_label: int | None
) -> jax.Array:
    """Checks labels, and returns them as int32, with IGNORED and INVALID in place of some."""
    if ignore_label is not None and not is_int(ignore_label, -(2**31), 2**31 - 1):
        raise ConfigError(f"ignore_label must be an int32 or None, got {ignore_label!r}")
    labels = as_array("labels", labels)
    check_dtype("labels", labels, "integer")
    if labels.shape != leading:
        raise ShapeError(f"labels must be [...] = {leading}, got shape {labels.shape}")
    known = known_values(labels)
    if known is not None:
        bad = ((known < 0) | (known >= vocab_size)) & (known != ignore_label)
        if bad.any():
            raise DataError(
                f"labels must be in 0 .. V-1 = {vocab_size - 1} or ignore_label={ignore_label}, "
                f"got {known[bad][0]} at index {tuple(int(i) for i in np.argwhere(bad)[0])}"
            )
    labels = as_int32(labels)  # holds -1 and V, which the labels' dtype may not
    marked = jnp.where((labels >= 0) & (labels < vocab_size), labels, INVALID)
    return marked if ignore_label is None else jnp.where(labels == ignore_label, IGNORED, marked)


def label_losses(terms: LossTerms, logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Loss of each label `[...]` by its logits `[..., V]`; 0 if IGNORED, NaN if INVALID."""
    if terms.softcap is not None:
        logits = terms.softcap * jnp.tanh(logits / terms.softcap)
    label_logits = _take_labels(logits, labels.clip(0))  # [...]
    log_normalizer = _log_normalizer(logits)  # [...]
    loss = log_normalizer - jnp.where(labels == INVALID, jnp.nan, label_logits)
    if terms.label_smoothing:
        smooth = log_normalizer - logits.mean(axis=-1)
        loss = (1 - terms.label_smoothing) * loss + terms.label_smoothing * smooth
    if terms.z_loss:
        loss = loss + terms.z_loss * jnp.square(log_normalizer)
    return jnp.where(labels == IGNORED, 0, loss)


# With both derivatives written out, the gradient is one pass over the logits and can reuse their
# memory. JAX's own would keep the exponentials and scatter into zeros.
@jax.custom_jvp
def _log_normalizer(logits: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(logits, axis=-1)


@_log_normalizer.defjvp
def _log_normalizer_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    (logits,), (direction,) = primals, tangents
    log_normalizer = _log_normalizer(logits)
    weights = jnp.exp(logits - log_normalizer[..., None])
    return log_normalizer, jnp.sum(weights * direction, axis=-1)


@jax.custom_jvp
def _take_labels(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Logits of labels that are in range."""
    return jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]


@_take_labels.defjvp
def _take_labels_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    logits, labels = primals
    # XLA fuses the one-hot into the sum: the gradient is a select, not a scatter.
    one_hot = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
    return _take_labels(logits, labels), jnp.sum(one_hot * tangents[0], axis=-1)
