"""Training losses, as (sum, weight): functions of parameters and a batch."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
from flax import linen as nn

from jaxformer.functional import chunked_cross_entropy, cross_entropy
from jaxformer.models import Decoder, EncoderDecoder, MaskedLanguageModel, SequenceClassifier
from jaxformer.training.parallel.layout import num_parts, sum_over_parts

Batch = dict[str, jax.Array]
Sums = tuple[jax.Array, jax.Array] | tuple[jax.Array, jax.Array, dict[str, jax.Array]]
LossFunction = Callable[[Any, Batch, jax.Array | None], Sums]
"""Function of (params, batch, dropout_rng or None): (loss_sum, weight_sum), or with metrics."""

Combine = Callable[[Any, Any], Any]
"""Function of (trained parameters, frozen parameters) that returns the parameters of a loss."""

# With more logits per device than this (512 MiB in float32), the loss is computed in chunks.
_MAX_LOGITS = 2**27


def language_model_loss(
    model: Decoder | MaskedLanguageModel | EncoderDecoder,
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> LossFunction:
    """Cross-entropy of a model's token logits, as a function for `fit`.

    Args:
        model: the model.
        label_smoothing: fraction of the target distribution spread evenly over the vocabulary.
        z_loss: weight of the squared log-normalizer, as in `functional.cross_entropy`; usually 1e-4
            (Chowdhery et al., "PaLM", 2022).

    Returns:
        A function of (params, batch, dropout_rng or None) that returns (loss_sum, weight_sum), in
        nats and tokens. The batch has integer `[B, T]` "labels" (-1 = not counted). Its other
        arrays, such as "tokens", "segment_ids" or "source_tokens", are arguments of the model. In
        training, that is with a dropout_rng, losses that blocks sow into the collection "losses"
        are added to the mean loss, such as the load balancing of a mixture of experts; and what
        they sow into "metrics" is a third result, by name, as means over the layers times the
        weight.
    """
    options = {"label_smoothing": label_smoothing, "z_loss": z_loss}
    return _Loss(model, _token_sums, tuple(options.items()))


def classification_loss(model: SequenceClassifier, *, label_smoothing: float = 0.0) -> LossFunction:
    """Cross-entropy of a classifier's logits, as a function for `fit`.

    Args:
        model: the model.
        label_smoothing: fraction of the target distribution spread evenly over the classes.

    Returns:
        A function of (params, batch, dropout_rng or None) that returns (loss_sum, weight_sum), in
        nats and rows, or tokens. The batch has "tokens" `[B, T]`, "lengths" `[B]` and "labels"
        `[B]`, or `[B, T]` for a classifier of tokens (-1 = not counted).
    """
    return _Loss(model, _class_sums, (("label_smoothing", label_smoothing),))


@dataclasses.dataclass(frozen=True)
class _Loss:
    """A loss of a model, by the function that sums it."""

    model: nn.Module
    sums: Callable[..., tuple[jax.Array, jax.Array]]
    options: tuple[tuple[str, float], ...]

    def __call__(self, params: Any, batch: Batch, dropout_rng: jax.Array | None) -> Sums:
        inputs: dict[str, Any] = {name: array for name, array in batch.items() if name != "labels"}
        inputs["deterministic"] = dropout_rng is None
        rngs = None if dropout_rng is None else {"dropout": dropout_rng}
        apply = nn.apply(self.sums, self.model, mutable=["losses", "metrics"])
        (total, weight), sown = apply(
            {"params": params}, inputs, batch["labels"], rngs=rngs, **dict(self.options)
        )
        if dropout_rng is None:
            return total, weight
        # Auxiliary losses and metrics are means, so they are multiplied by the weight.
        total += weight * sum(leaf.sum() for leaf in jax.tree.leaves(sown.pop("losses", {})))
        by_name: dict[str, list[jax.Array]] = {}
        # A scan stacks what its layers sow.
        for path, leaf in jax.tree.leaves_with_path(sown):
            by_name.setdefault(path[-2].key, []).append(leaf.mean())
        metrics = {name: weight * sum(means) / len(means) for name, means in by_name.items()}
        return (total, weight, metrics) if metrics else (total, weight)


def _token_sums(
    model: Any, inputs: dict[str, Any], labels: jax.Array, **options: Any
) -> tuple[jax.Array, jax.Array]:
    """Loss and weight of the tokens; of many logits, in chunks."""
    hidden = model.hidden_states(**inputs).hidden
    embedding = model.output_embedding()
    table, bias = embedding.output_table(), embedding.output_bias()
    biases = () if bias is None else (bias,)
    with jax.named_scope("loss"):
        if labels.size * table.shape[0] > _MAX_LOGITS * num_parts():
            factor, softcap = model.config.logit_factor, model.config.logit_softcap
            hidden = hidden if factor is None else hidden * factor
            chunked = functools.partial(
                chunked_cross_entropy, softcap=softcap, products=embedding.products, **options
            )
            return sum_over_parts(chunked, hidden, table, labels, *biases)
        return cross_entropy(model.logits(hidden), labels, **options)


def _class_sums(
    model: Any, inputs: dict[str, Any], labels: jax.Array, **options: Any
) -> tuple[jax.Array, jax.Array]:
    """Loss and weight of the classes of rows, or of tokens."""
    logits = model(**inputs).logits
    with jax.named_scope("loss"):
        return cross_entropy(logits, labels, **options)
