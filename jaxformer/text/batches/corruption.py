"""Masked language modelling: hiding tokens, and the labels that restore them."""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from einops import rearrange

from jaxformer.errors import ConfigError, DataError
from jaxformer.text.batches.batches import Host, require_seed
from jaxformer.text.store.arrays import IGNORE

_DRAWS = 3
"""Random numbers per token: whether it is chosen, what happens to it, and its replacement."""


class MaskedBatches:
    """Batches corrupted for a masked language model: `batches[step]` to train on, and `once()`.

    Ordinary tokens are all except the mask and special tokens. Of the n ordinary tokens in each
    row, exactly max(1, round(rate * n)) are chosen, so at least one if there is any. Of those, 80 %
    become the mask, 10 % become a random ordinary token (maybe the same), and 10 % are kept.

    The random numbers depend only on the seed, the step and the row of the global batch. So each
    epoch masks different tokens, and several hosts make the same global batch as one host.

    Where a label of an incoming batch is `IGNORE`, no token is chosen: padding, padding rows, and
    the end of a packed document. The incoming labels have no other use; those of the chosen tokens
    replace them. All other arrays are kept.

    Attributes:
        batches_per_epoch: that of the incoming batches; None if they have none.

    Args:
        batches: batches with "tokens" and "labels" [rows, T] by step, such as `Batches`.
        seed: seed of the choice, at least 0.
        mask_token: id of the mask token.
        vocab_size: number of tokens, including the mask and special tokens.
        rate: share of the ordinary tokens to choose, more than 0 and at most 1.
        special: tokens that are never chosen and never inserted, such as the end of text.
        host: this host among those that share a batch, as in `batches`.

    Raises:
        ConfigError: the rate is out of range, or the mask or a special token is not in the
            vocabulary.
        DataError: the seed is negative, or a token of a batch is not in the vocabulary.

    References:
        Devlin, Chang, Lee, Toutanova, BERT: Pre-training of Deep Bidirectional Transformers for
        Language Understanding, 2019.

    Example:
        >>> from jaxformer.text import Batches, Windows, build_stream, byte_tokenizer
        >>> windows = Windows(build_stream(["to be or not to be"], byte_tokenizer()), length=4)
        >>> batches = Batches(windows, batch_size=2, seed=0)
        >>> masked = MaskedBatches(batches, seed=0, mask_token=257, vocab_size=258, special=[256])
        >>> (masked[3]["labels"] != IGNORE).sum(axis=1)
        array([1, 1])
    """

    batches_per_epoch: float | None

    def __init__(
        self,
        batches: Any,
        *,
        seed: int,
        mask_token: int,
        vocab_size: int,
        rate: float = 0.15,
        special: Collection[int] = (),
        host: Host = Host(),
    ) -> None:
        require_seed(seed)
        self.batches_per_epoch = getattr(batches, "batches_per_epoch", None)
        self._batches = batches
        self._seed = seed
        self._mask_token = mask_token
        self._rate = rate
        self._ordinary = _ordinary_tokens(mask_token, vocab_size, rate, special)
        self._host = host

    def source_names(self, step: int) -> list[str] | None:
        """Source of each row, from the incoming batches; None if they have none."""
        names = getattr(self._batches, "source_names", None)
        return None if names is None else names(step)

    def __getitem__(self, step: int) -> dict[str, np.ndarray]:
        batch = self._batches[step]
        seeds = np.random.SeedSequence([self._seed, step])
        return self._masked(batch, seeds, self._host.index * batch["tokens"].size)

    def once(self) -> Iterator[dict[str, np.ndarray]]:
        """Yields the `once()` of the incoming batches, masked the same way each time.

        The random numbers depend on the seed and the number of earlier rows, over all batches and
        hosts. If all rows have the same length, another batch size masks the same tokens.
        """
        # The spawn key matters: [seed] alone gives the numbers of [seed, 0], the first step.
        seeds = np.random.SeedSequence(self._seed, spawn_key=(1,))
        before = 0  # tokens in the global batches so far
        for batch in self._batches.once():
            size = batch["tokens"].size
            yield self._masked(batch, seeds, before + self._host.index * size)
            before += self._host.count * size

    def _masked(
        self, batch: dict[str, np.ndarray], seeds: np.random.SeedSequence, before: int
    ) -> dict[str, np.ndarray]:
        """The batch, corrupted by random numbers after those of `before` tokens."""
        tokens, ordinary = batch["tokens"], self._ordinary
        if tokens.size and not 0 <= tokens.min() <= tokens.max() < ordinary.size:
            raise DataError(
                f"every token must be at least 0 and less than vocab_size={ordinary.size}, got "
                f"{tokens.min()} to {tokens.max()}; use the vocabulary that the text was encoded "
                "with"
            )
        rng = np.random.Generator(np.random.PCG64(seeds).advance(_DRAWS * before))
        # One draw per number, _DRAWS numbers per token, row after row, so that rows can be
        # skipped.
        draws = rng.random((*tokens.shape, _DRAWS))
        order, fate, other = rearrange(draws, "... draws -> draws ...")
        choosable = ordinary[tokens] & (batch["labels"] != IGNORE)
        n = choosable.sum(axis=-1, keepdims=True)
        count = np.where(n > 0, np.maximum(1, np.rint(self._rate * n)), 0)
        # Choose the first `count` of a random order of the eligible tokens.
        first = np.argsort(np.where(choosable, order, np.inf), axis=-1)
        chosen = np.zeros(tokens.shape, bool)
        np.put_along_axis(chosen, first, np.arange(tokens.shape[-1]) < count, axis=-1)
        # Replacements are computed only for the chosen tokens, which are few.
        places = np.nonzero(chosen)
        fates, choices = fate[places], np.flatnonzero(ordinary)
        replacements = choices[(other[places] * choices.size).astype(np.int64)]
        corrupted, labels = tokens.astype(np.int32), np.full(tokens.shape, IGNORE, np.int32)
        labels[places] = tokens[places]
        corrupted[places] = np.select(
            [fates < 0.8, fates < 0.9],
            [np.full_like(replacements, self._mask_token), replacements],
            labels[places],
        )
        return batch | {"tokens": corrupted, "labels": labels}


def _ordinary_tokens(
    mask_token: int, vocab_size: int, rate: float, special: Collection[int]
) -> np.ndarray:
    """Table of the tokens that may be chosen and inserted: bool [vocab_size]."""
    if not 0 < rate <= 1:
        raise ConfigError(f"rate must be more than 0 and at most 1, got {rate}; try 0.15")
    reserved = sorted({mask_token, *special})
    if reserved[0] < 0 or reserved[-1] >= vocab_size:
        raise ConfigError(
            "mask_token and special must be at least 0 and less than vocab_size, got "
            f"mask_token={mask_token}, special={sorted(special)} and vocab_size={vocab_size}; "
            "vocab_size must include them"
        )
    ordinary = np.ones(vocab_size, bool)
    ordinary[reserved] = False
    return ordinary
