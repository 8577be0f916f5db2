import numpy as np
import pytest

from jaxformer.errors import ConfigError, DataError
from jaxformer.text import (
    IGNORE,
    Batches,
    BucketedBatches,
    Host,
    MaskedBatches,
    PackedDocuments,
    TokenStream,
    Windows,
)
from tests.text.arrays import assert_hosts_share, assert_same, joined

MASK, SPECIAL, NUM_TOKENS = 30, (0, 17), 31
ORDINARY = sorted(set(range(NUM_TOKENS)) - {MASK, *SPECIAL})
OPTIONS = dict(mask_token=MASK, vocab_size=NUM_TOKENS, special=SPECIAL)
TEXT = TokenStream(
    np.random.default_rng(0).choice(ORDINARY, 331).astype(np.uint16), np.arange(0, 331, 41)
)


def mask_tokens(tokens, *, labels=0, **options):
    """Tokens and labels of a masked batch."""
    batch = {"tokens": tokens, "labels": np.broadcast_to(labels, tokens.shape)}
    masked = MaskedBatches([batch], seed=1, **(OPTIONS | options))[0]
    return masked["tokens"], masked["labels"]


def random_tokens(*shape, seed=0):
    return np.random.default_rng(seed).integers(NUM_TOKENS, size=shape)


@pytest.mark.parametrize("rate", [0.01, 0.15, 0.5, 1.0])
def test_masking_chooses_an_exact_count_of_each_row(rate):
    tokens = random_tokens(5, 101, 13)
    tokens[2, 3] = 17  # Nothing to choose,
    tokens[2, 4, 1:] = MASK  # and at most one.
    tokens[2, 4, 0] = 5
    corrupted, labels = mask_tokens(tokens, rate=rate)
    assert corrupted.shape == labels.shape == tokens.shape
    assert corrupted.dtype == labels.dtype == np.int32
    n = np.isin(tokens, ORDINARY).sum(axis=-1)
    assert set(n.ravel().tolist()) >= {0, 1, 11}
    expected = [[max(1, round(rate * k)) if k else 0 for k in row] for row in n.tolist()]
    assert (labels != IGNORE).sum(axis=-1).tolist() == expected
    assert np.isin(labels[labels != IGNORE], ORDINARY).all()


def test_masking_shares_are_those_of_the_paper():
    tokens = np.random.default_rng(0).choice(ORDINARY, (997, 100))
    corrupted, labels = mask_tokens(tokens, rate=0.15)
    chosen = labels != IGNORE
    assert chosen.sum() == 997 * 15
    masked = corrupted[chosen] == MASK
    same = corrupted[chosen] == tokens[chosen]
    num_ordinary = len(ORDINARY)
    for hits, share in [
        (masked, 0.8),
        (same, 0.1 + 0.1 / num_ordinary),
        (~masked & ~same, 0.1 * (1 - 1 / num_ordinary)),
    ]:
        assert abs(hits.mean() - share) < 4 * np.sqrt(share * (1 - share) / hits.size)
    # Each position, and each ordinary token, is as likely as any other.
    assert abs(chosen.mean(axis=0) - 0.15).max() < 4 * np.sqrt(0.15 * 0.85 / 997)
    put_in = np.bincount(corrupted[chosen][~masked & ~same], minlength=NUM_TOKENS)
    assert put_in[[MASK, *SPECIAL]].sum() == 0
    counts = put_in[ORDINARY]
    assert abs(counts - counts.mean()).max() < 4 * np.sqrt(counts.mean())


def test_masked_batches_are_the_batches_corrupted():
    batches = Batches(PackedDocuments(TEXT, 13), 6, seed=7)
    masked = MaskedBatches(batches, seed=3, rate=0.3, **OPTIONS)
    for step in (0, 5, 2**40):
        batch, plain = masked[step], batches[step]
        chosen = batch["labels"] != IGNORE
        assert batch.keys() == plain.keys()
        for name in ("segment_ids", "positions"):
            np.testing.assert_array_equal(batch[name], plain[name])
        np.testing.assert_array_equal(batch["labels"][chosen], plain["tokens"][chosen])
        np.testing.assert_array_equal(batch["tokens"][~chosen], plain["tokens"][~chosen])
        assert (batch["tokens"] != plain["tokens"]).any()
        n = (plain["labels"] != IGNORE).sum(axis=1)
        assert chosen.sum(axis=1).tolist() == [max(1, round(0.3 * k)) for k in n.tolist()]


def test_masked_batches_choose_nothing_without_a_label():
    batches = Batches(PackedDocuments(TEXT, 13), 26, seed=7)  # All of them.
    plain, batch = batches[0], MaskedBatches(batches, seed=3, rate=1, **OPTIONS)[0]
    has_label = plain["labels"] != IGNORE
    assert (~has_label).sum() > 8  # In padding, and at the ends of documents.
    np.testing.assert_array_equal(batch["labels"] != IGNORE, has_label)


def test_masked_batches_mask_each_epoch_and_each_row_anew():
    class Same:
        def __getitem__(self, step):
            return {"tokens": np.full((5, 53), 9), "labels": np.full((5, 53), 9)}

    masked = MaskedBatches(Same(), seed=3, **OPTIONS)
    chosen = [tuple(row) for step in range(7) for row in (masked[step]["labels"] > 0).tolist()]
    assert len(set(chosen)) == 5 * 7


@pytest.mark.parametrize("num_hosts", [2, 3])
def test_masked_hosts_rows_make_up_the_global_batch(num_hosts):
    rows = [np.resize(TEXT.tokens[length:], length).astype(np.int32) for length in range(3, 26)]
    examples = [{"tokens": row, "labels": row} for row in rows]

    def make(host):
        bucketed = dict(batch_tokens=150, multiple_of=6, num_buckets=3, host=host)
        return MaskedBatches(
            BucketedBatches(examples, seed=7, **bucketed), seed=3, **OPTIONS, host=host
        )

    assert_hosts_share(make, num_hosts, range(make(Host()).batches_per_epoch + 1))


def test_masked_evaluation_does_not_depend_on_the_batch_size():
    def masked(batch_size):
        batches = Batches(Windows(TEXT, 13), batch_size)  # 26, the last one shorter.
        return joined(list(MaskedBatches(batches, seed=3, **OPTIONS).once()))

    batch = masked(12)
    assert len(batch["tokens"]) == 36
    assert_same({name: array[:26] for name, array in batch.items()}, masked(1))
    is_chosen = batch["labels"] != IGNORE
    assert not is_chosen[26:].any() and not batch["tokens"][26:].any()
    assert (is_chosen.sum(axis=1)[:25] == 2).all()
    # Rows are not all masked at the same places.
    assert len({tuple(row) for row in is_chosen[:26].tolist()}) > 13


BATCHES = Batches(Windows(TEXT, 13), 2, seed=7)


@pytest.mark.parametrize(
    "options, rule",
    [
        (dict(rate=0), "more than 0 and at most 1, got 0; try 0.15"),
        (dict(rate=1.1), "more than 0 and at most 1, got 1.1"),
        (dict(rate=float("nan")), "more than 0 and at most 1, got nan"),
        (
            dict(mask_token=31),
            r"got mask_token=31, special=\[0, 17\] and vocab_size=31; vocab_size",
        ),
        (dict(mask_token=-1), "got mask_token=-1"),
        (dict(special=[31]), r"got mask_token=30, special=\[31\] and"),
    ],
)
def test_masking_refuses_impossible_settings(options, rule):
    with pytest.raises(ConfigError, match=rule):
        MaskedBatches(BATCHES, seed=0, **(OPTIONS | options))


@pytest.mark.parametrize("token, range", [(31, "5 to 31"), (-1, "-1 to 5")])
def test_masking_refuses_tokens_outside_the_vocabulary(token, range):
    with pytest.raises(
        DataError, match=f"at least 0 and less than vocab_size=31, got {range}; use"
    ):
        mask_tokens(np.array([[5, token]]))


def test_masked_evaluation_has_draws_of_its_own():
    class Same:
        def __getitem__(self, step):
            return BATCHES[0]

        def once(self):
            return iter([BATCHES[0]])

    masked = MaskedBatches(Same(), seed=3, **OPTIONS)
    assert (masked[0]["labels"] != next(masked.once())["labels"]).any()
