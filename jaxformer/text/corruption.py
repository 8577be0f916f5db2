"""Masked language modelling: hiding tokens, and the labels that restore them."""

from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

import numpy as np
from einops import rearrange

from jaxformer.errors import ConfigError, DataError, ShapeError
from jaxformer.text.batches import Host, require_seed
from jaxformer.text.packing import IGNORE

__all__ = ["MaskedBatches", "mask_tokens", "masked_evaluation_batches"]

_DRAWS = 3
"""Random numbers for a token: whether it is chosen, what becomes of it, and by which other."""


class _BatchSource(Protocol):
    """Batches by step."""

    def __getitem__(self, step: int) -> dict[str, np.ndarray]: ...


def mask_tokens(
    tokens: np.ndarray,
    rng: np.random.Generator,
    *,
    mask_token: int,
    vocab_size: int,
    rate: float = 0.15,
    special: Collection[int] = (),
    where: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Corrupts tokens for a masked language model.

    Of the n ordinary tokens in each row, all but the mask and the special ones, exactly
    max(1, round(rate * n)) are chosen, so a row with an ordinary token has at least one. Of those,
    80 % become the mask, 10 % any ordinary token (maybe the same), and 10 % stay as they are.

    Args:
        tokens: integers [..., T].
        rng: generator of the choice.
        mask_token: the token that hides another.
        vocab_size: number of tokens, the mask and the special ones included.
        rate: share of the ordinary tokens to choose, more than 0 and at most 1.
        special: tokens that are never chosen and never put in, such as the end of text.
        where: bool [..., T], False where nothing may be chosen, such as padding.

    Returns:
        The corrupted tokens, int32 [..., T]; and the labels, int32 [..., T]: the token that was
        there where one was chosen, else `IGNORE`.

    Raises:
        ConfigError: the rate is out of range, the mask or a special token is not one of the
            vocabulary, or no token of it is ordinary.
        DataError: a token is not one of the vocabulary.
        ShapeError: the tokens are not integers with an axis, or `where` is of another shape.

    References:
        Devlin, Chang, Lee, Toutanova, BERT: Pre-training of Deep Bidirectional Transformers for
        Language Understanding, 2019.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> mask_tokens(np.array([5, 6, 7, 8]), rng, mask_token=9, vocab_size=10, rate=0.5)
        (array([5, 8, 9, 8], dtype=int32), array([-1,  6,  7, -1], dtype=int32))
    """
    ordinary = _ordinary_tokens(mask_token, vocab_size, rate, special)
    return _corrupt(tokens, rng, ordinary, mask_token, rate, where)


class MaskedBatches:
    """Corrupts the batches of a training run by `mask_tokens`: `batches[step]`, in any order.

    The random numbers depend on the seed, the step and the row of the global batch only: each
    epoch hides other tokens, and several hosts make the global batch that a single one makes.

    Where a label of an incoming batch is `IGNORE`, as in padding, in rows that fill up a batch and
    at the end of a packed document, nothing is chosen. The labels are of no other use: those of
    the chosen tokens take their place. All other arrays stay.

    Attributes:
        batches_per_epoch: as of the incoming batches; None where they do not say.

    Args:
        batches: batches with "tokens" and "labels" [rows, T], such as `Batches`.
        seed: seed of the choice, at least 0.
        mask_token: the token that hides another.
        vocab_size: number of tokens, the mask and the special ones included.
        rate: share of the ordinary tokens to choose, more than 0 and at most 1.
        special: tokens that are never chosen and never put in, such as the end of text.
        host: this host, of those that share a batch, as in `batches`.

    Raises:
        ConfigError: as for `mask_tokens`.
        DataError: the seed is negative.

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
        batches: _BatchSource,
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
        """Names of the sources that rows are from, as of the incoming batches; or None."""
        names = getattr(self._batches, "source_names", None)
        return None if names is None else names(step)

    def __getitem__(self, step: int) -> dict[str, np.ndarray]:
        batch = self._batches[step]
        seeds = np.random.SeedSequence([self._seed, step])
        rng = _generator(seeds, self._host.index * batch["tokens"].size)
        return _masked(batch, rng, self._ordinary, self._mask_token, self._rate)


def masked_evaluation_batches(
    batches: Iterable[dict[str, np.ndarray]],
    *,
    seed: int,
    mask_token: int,
    vocab_size: int,
    rate: float = 0.15,
    special: Collection[int] = (),
    host: Host = Host(),
) -> Iterator[dict[str, np.ndarray]]:
    """Corrupts validation batches as `MaskedBatches` does training batches, each time the same.

    The random numbers depend on the seed and on how many rows went before, of all batches and
    hosts. Where all rows are of one length, so that batches may be cut in any way, another batch
    size hides the same tokens.

    Args:
        batches: batches with "tokens" and "labels" [rows, T], such as `evaluation_batches`.
        seed: seed of the choice, at least 0.
        mask_token: the token that hides another.
        vocab_size: number of tokens, the mask and the special ones included.
        rate: share of the ordinary tokens to choose, more than 0 and at most 1.
        special: tokens that are never chosen and never put in, such as the end of text.
        host: this host, of those that share a batch, as in `batches`.

    Returns:
        An iterator over the corrupted batches.

    Raises:
        ConfigError: as for `mask_tokens`.
        DataError: the seed is negative.

    Example:
        >>> batches = iter([{"tokens": np.array([[5, 6]]), "labels": np.array([[6, IGNORE]])}])
        >>> masked = masked_evaluation_batches(batches, seed=0, mask_token=9, vocab_size=10)
        >>> next(masked)["labels"]
        array([[ 5, -1]], dtype=int32)
    """
    require_seed(seed)
    ordinary = _ordinary_tokens(mask_token, vocab_size, rate, special)

    # A key of its own: [seed] alone would give the numbers of [seed, 0], the first training step.
    seeds = np.random.SeedSequence(seed, spawn_key=(1,))

    def corrupted() -> Iterator[dict[str, np.ndarray]]:
        before = 0  # Tokens of the global batches so far.
        for batch in batches:
            size = batch["tokens"].size
            rng = _generator(seeds, before + host.index * size)
            yield _masked(batch, rng, ordinary, mask_token, rate)
            before += host.count * size

    return corrupted()


def _generator(seeds: np.random.SeedSequence, tokens: int) -> np.random.Generator:
    """Generator advanced past the random numbers of so many tokens."""
    bits = np.random.PCG64(seeds)
    return np.random.Generator(bits.advance(_DRAWS * tokens))


def _masked(
    batch: dict[str, np.ndarray],
    rng: np.random.Generator,
    ordinary: np.ndarray,
    mask_token: int,
    rate: float,
) -> dict[str, np.ndarray]:
    """Batch with corrupted tokens, and the original ones as labels."""
    where = batch["labels"] != IGNORE
    tokens, labels = _corrupt(batch["tokens"], rng, ordinary, mask_token, rate, where)
    return batch | {"tokens": tokens, "labels": labels}


def _corrupt(
    tokens: np.ndarray,
    rng: np.random.Generator,
    ordinary: np.ndarray,
    mask_token: int,
    rate: float,
    where: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """`mask_tokens` with a precomputed table of ordinary tokens: bool [vocab_size]."""
    _require_tokens(tokens, ordinary.size, where)
    # Row after row, _DRAWS for each token and each from one draw of the generator, so that
    # `_generator` can skip rows.
    order, fate, other = rearrange(rng.random((*tokens.shape, _DRAWS)), "... draws -> draws ...")
    choosable = ordinary[tokens] if where is None else ordinary[tokens] & where
    n = choosable.sum(axis=-1, keepdims=True)
    count = np.where(n > 0, np.maximum(1, np.rint(rate * n)), 0)
    # Those that come first in a random order of the tokens that may be chosen.
    first = np.argsort(np.where(choosable, order, np.inf), axis=-1)
    chosen = np.zeros(tokens.shape, bool)
    np.put_along_axis(chosen, first, np.arange(tokens.shape[-1]) < count, axis=-1)
    # What becomes of a token is worked out for those that are chosen alone, a few of all.
    places = np.nonzero(chosen)
    fates, choices = fate[places], np.flatnonzero(ordinary)
    others = choices[(other[places] * choices.size).astype(np.int64)]
    corrupted, labels = tokens.astype(np.int32), np.full(tokens.shape, IGNORE, np.int32)
    labels[places] = tokens[places]
    corrupted[places] = np.select(
        [fates < 0.8, fates < 0.9], [np.full_like(others, mask_token), others], labels[places]
    )
    return corrupted, labels


def _require_tokens(tokens: np.ndarray, vocab_size: int, where: np.ndarray | None) -> None:
    """Raises ShapeError or DataError where tokens cannot be corrupted."""
    if tokens.ndim < 1 or tokens.dtype.kind not in "iu":
        raise ShapeError(
            f"tokens must be integers of shape [..., T], got {tokens.dtype} of shape "
            f"{tokens.shape}; give what a tokenizer or a batch has"
        )
    if where is not None and (where.shape != tokens.shape or where.dtype != bool):
        raise ShapeError(
            "where a token may be chosen must be a bool for each, of the tokens' shape "
            f"{tokens.shape}, got {where.dtype} of shape {where.shape}; a batch of labels has one "
            "for each token, IGNORE in padding"
        )
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < vocab_size:
        raise DataError(
            f"every token must be at least 0 and less than vocab_size={vocab_size}, got "
            f"{tokens.min()} to {tokens.max()}; use the vocabulary that the text was encoded with"
        )


def _ordinary_tokens(
    mask_token: int, vocab_size: int, rate: float, special: Collection[int]
) -> np.ndarray:
    """Table of the tokens that may be chosen and put in: bool [vocab_size]."""
    if not 0 < rate <= 1:
        raise ConfigError(f"rate must be more than 0 and at most 1, got {rate}; try 0.15")
    reserved = sorted({mask_token, *special})
    if reserved[0] < 0 or reserved[-1] >= vocab_size:
        raise ConfigError(
            "mask_token and special must be at least 0 and less than vocab_size, got "
            f"mask_token={mask_token}, special={sorted(special)} and vocab_size={vocab_size}; "
            "vocab_size counts them too"
        )
    if len(reserved) == vocab_size:
        raise ConfigError(
            f"a vocabulary must have ordinary tokens, got vocab_size={vocab_size}, all of them "
            "mask_token or special; leave some out of special"
        )
    ordinary = np.ones(vocab_size, bool)
    ordinary[reserved] = False
    return ordinary
