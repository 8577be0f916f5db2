"""Training losses, as (sum, weight): functions of parameters and a batch."""

from collections.abc import Callable
from typing import Any

import jax

from jaxformer.functional.chunked_losses import chunked_cross_entropy
from jaxformer.functional.losses import cross_entropy
from jaxformer.models import Decoder, EncoderDecoder, MaskedLanguageModel, SequenceClassifier

__all__ = ["Batch", "LossFunction", "classification_loss", "language_model_loss"]

Batch = dict[str, jax.Array]
LossFunction = Callable[[Any, Batch, jax.Array | None], tuple[jax.Array, jax.Array]]

# More logits than this, 512 MiB in float32, are made and dropped in chunks.
_MOST_LOGITS = 2**27


def language_model_loss(
    model: Decoder | MaskedLanguageModel | EncoderDecoder, *, label_smoothing: float = 0.0
) -> LossFunction:
    """Makes the loss of a model that scores tokens.

    Args:
        model: the model.
        label_smoothing: share of the target that is spread evenly over the vocabulary.

    Returns:
        A function of (params, batch, dropout_rng or None) to (loss_sum, weight_sum), in nats and
        tokens. The batch has integer `[B, T]` "labels" (-1 = not counted); all else in it is what
        the model is called with, such as "tokens", "segment_ids" or "source_tokens".
    """

    def loss(
        params: Any, batch: Batch, dropout_rng: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        variables = {"params": params}
        hidden = model.apply(variables, **_call(batch, dropout_rng), method="hidden_states")
        labels, table = batch["labels"], model.apply(variables, method="output_table")
        if labels.size * table.shape[0] > _MOST_LOGITS:
            return chunked_cross_entropy(
                hidden, table, labels, label_smoothing=label_smoothing,
                softcap=model.config.logit_softcap,
            )  # fmt: skip
        logits = model.apply(variables, hidden, method="logits")
        return cross_entropy(logits, labels, label_smoothing=label_smoothing)

    return loss


def classification_loss(model: SequenceClassifier, *, label_smoothing: float = 0.0) -> LossFunction:
    """Makes the loss of a classifier.

    Args:
        model: the model.
        label_smoothing: share of the target that is spread evenly over the classes.

    Returns:
        A function of (params, batch, dropout_rng or None) to (loss_sum, weight_sum), in nats and
        rows. The batch has "tokens" `[B, T]`, "lengths" `[B]` and "labels" `[B]` (-1 = not
        counted).
    """

    def loss(
        params: Any, batch: Batch, dropout_rng: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        output = model.apply({"params": params}, **_call(batch, dropout_rng))
        return cross_entropy(output.logits, batch["labels"], label_smoothing=label_smoothing)

    return loss


def _call(batch: Batch, dropout_rng: jax.Array | None) -> dict[str, Any]:
    """The arguments of a model's call: all of a batch but its labels, and dropout."""
    inputs: dict[str, Any] = {name: array for name, array in batch.items() if name != "labels"}
    rngs = None if dropout_rng is None else {"dropout": dropout_rng}
    return {**inputs, "deterministic": dropout_rng is None, "rngs": rngs}
