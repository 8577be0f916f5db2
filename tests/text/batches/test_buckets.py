import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer.errors import ConfigError, DataError
from jaxformer.text import IGNORE, BucketedBatches, Host
from tests.text.arrays import assert_hosts_share, assert_same

# Of each length from 1 to 13, once to 13 times: 91 examples.
LENGTHS = np.random.default_rng(5).permutation(np.repeat(np.arange(1, 14), np.arange(13, 0, -1)))


def example_of(number, length):
    """A pair whose label and tokens tell which example it is; its source is the longer part."""
    return {
        "source": np.full(length, number + 1, np.int32),
        "labels": np.full(max(1, length // 2), number, np.int16),
        "lengths": np.int64(length),
        "weights": np.full(1, 0.5, np.float32),
    }


EXAMPLES = [example_of(number, length) for number, length in enumerate(LENGTHS.tolist())]
OPTIONS = dict(batch_tokens=53, multiple_of=4, num_buckets=5)


def numbers(batches):
    """Which examples are in batches, row after row, without those that fill up."""
    return [n for batch in batches for n in batch["labels"][:, 0].tolist() if n != IGNORE]


def epoch_of(batches, epoch):
    start = epoch * batches.batches_per_epoch
    return [batches[step] for step in range(start, start + batches.batches_per_epoch)]


def positions(lengths, edges, batch_tokens, multiple_of):
    """How many positions the batches of an epoch have in buckets of these lengths."""
    total = 0
    for shorter, edge in itertools.pairwise([0, *edges]):
        rows = batch_tokens // edge // multiple_of * multiple_of
        members = sum(shorter < length <= edge for length in lengths)
        total += -(-members // rows) * rows * edge
    return total


def test_every_epoch_has_each_example_once_in_another_order():
    batches = BucketedBatches(EXAMPLES, seed=7, **OPTIONS)
    orders = [numbers(epoch_of(batches, epoch)) for epoch in range(4)]
    for order in orders:
        assert sorted(order) == list(range(len(EXAMPLES)))
    assert len({tuple(order) for order in orders}) == 4
    # The order of the batches differs, and so does which examples share one.
    epochs = [epoch_of(batches, epoch) for epoch in range(4)]
    shapes = [[batch["source"].shape for batch in epoch] for epoch in epochs]
    assert len({tuple(order) for order in shapes}) > 1
    assert len({tuple(sorted(order)) for order in shapes}) == 1
    together = [{frozenset(numbers([batch])) for batch in epoch} for epoch in epochs]
    assert len(together[0] & together[1]) < batches.batches_per_epoch / 2


def test_batches_depend_on_seed_and_step_only():
    batches, again = (BucketedBatches(EXAMPLES, seed=7, **OPTIONS) for _ in range(2))
    sent = pickle.loads(pickle.dumps(batches))  # as to another process
    for step in (13, 0, 2**40, 13, 1, batches.batches_per_epoch, 0):
        assert_same(batches[step], again[step])
        assert_same(sent[step], again[step])
    in_order = [again[step] for step in range(40)]
    for step in np.random.default_rng(0).permutation(40).tolist():
        assert_same(batches[step], in_order[step])
    other = BucketedBatches(EXAMPLES, seed=8, **OPTIONS)
    assert numbers(epoch_of(batches, 0)) != numbers(epoch_of(other, 0))


def test_batch_is_its_examples_filled_up():
    batches = BucketedBatches(EXAMPLES, seed=7, **OPTIONS)
    filled_up = 0
    for batch in epoch_of(batches, 1):
        rows, length = batch["source"].shape
        assert (rows, length) in batches.shapes
        assert batch["lengths"].shape == (rows,)
        for row in range(rows):
            number = int(batch["labels"][row, 0])
            is_example = number != IGNORE
            filled_up += not is_example
            expected = (
                EXAMPLES[number] if is_example else {name: np.zeros(0) for name in EXAMPLES[0]}
            )
            for name in ("source", "labels", "weights"):
                fill = np.full(length - expected[name].size, IGNORE if name == "labels" else 0)
                padded = np.concatenate([expected[name], fill])
                assert batch[name][row].tolist() == padded.tolist()
            assert batch["lengths"][row] == (expected["lengths"] if is_example else 0)
        for name, array in EXAMPLES[0].items():
            assert batch[name].dtype == array.dtype
    assert filled_up == sum(
        rows * len([b for b in epoch_of(batches, 0) if b["source"].shape == (rows, length)])
        for rows, length in batches.shapes
    ) - len(EXAMPLES)
    assert filled_up > 0


def test_labels_of_classes_fill_up_with_ignore():
    examples = [{"tokens": np.arange(3), "labels": np.int32(i)} for i in range(5)]
    batches = BucketedBatches(examples, seed=7, batch_tokens=9)
    labels = [batch["labels"] for batch in epoch_of(batches, 0)]
    assert batches.shapes == ((3, 3),)
    assert all(array.shape == (3,) and array.dtype == np.int32 for array in labels)
    assert sorted(np.concatenate(labels).tolist()) == [IGNORE, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("num_hosts", [2, 4])
def test_hosts_rows_make_up_the_global_batch(num_hosts):
    def make(host):
        return BucketedBatches(EXAMPLES, seed=7, **OPTIONS, host=host)

    whole, part = make(Host()), make(Host(1, num_hosts))
    assert part.shapes == whole.shapes and part.batches_per_epoch == whole.batches_per_epoch
    assert_hosts_share(make, num_hosts, range(2 * whole.batches_per_epoch))


def test_evaluation_has_each_example_once_in_order_of_buckets():
    batches = BucketedBatches(EXAMPLES, seed=7, **OPTIONS)
    evaluation = list(batches.once())
    assert len(evaluation) == batches.batches_per_epoch
    edges = [length for _, length in batches.shapes]
    assert numbers(evaluation) == sorted(
        range(len(EXAMPLES)), key=lambda n: (np.searchsorted(edges, LENGTHS[n]), n)
    )
    shapes = [batch["source"].shape for batch in evaluation]
    assert [shape for shape, _ in itertools.groupby(shapes)] == list(batches.shapes)


@settings(deadline=None, max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=31),
    num_buckets=st.integers(1, 4),
    budget=st.integers(18, 41),
    multiple_of=st.integers(1, 2),
)
def test_buckets_have_the_fewest_positions(lengths, num_buckets, budget, multiple_of):
    batches = BucketedBatches(
        [{"labels": np.zeros(length, np.int32)} for length in lengths],
        seed=7, batch_tokens=budget, multiple_of=multiple_of, num_buckets=num_buckets,
    )  # fmt: skip
    *shorter, longest = sorted(set(lengths))
    fewest = min(
        positions(lengths, [*edges, longest], budget, multiple_of)
        for count in range(num_buckets)
        for edges in itertools.combinations(shorter, count)
    )
    assert sum(batch["labels"].size for batch in epoch_of(batches, 0)) == fewest


@pytest.mark.parametrize(
    "options, rule",
    [
        (dict(batch_tokens=51), "batch_tokens=51, multiple_of=4 and a length of 13; try 52, or le"),
        (dict(batch_tokens=0), "got batch_tokens=0, .*try 52"),
        (dict(multiple_of=6, host=Host(0, 4)), "multiple_of=6 and host.count=4; try 4"),
        (dict(multiple_of=1, host=Host(0, 4)), "multiple_of=1 and host.count=4; try 4"),
        (dict(multiple_of=0), "multiple_of=0 and host.count=1; try 1"),
    ],
)
def test_buckets_refuse_impossible_settings(options, rule):
    with pytest.raises(ConfigError, match=rule):
        BucketedBatches(EXAMPLES, **(OPTIONS | options))


@pytest.mark.parametrize(
    "examples, rule",
    [
        ([], "at least one example, got none; add text"),
        ([{"tokens": np.zeros(3, np.int32)}], "must have labels .* got {'tokens'"),
        ([{"labels": np.int32(3)}], "an array with one axis, and no array with more, got"),
        ([{"labels": np.zeros((3, 2), np.int32)}], r"no array with more, got .*, 2\)"),
        (
            [{"labels": np.zeros(3, np.uint16)}],
            "signed integers, .*got .*uint16.*make labels int32",
        ),
        ([EXAMPLES[0], {"labels": np.zeros(3, np.int16)}], "arrays of the first, .* in example 1"),
        ([EXAMPLES[0], EXAMPLES[1] | {"lengths": np.float32(1)}], "got .*float32.* in example 1"),
        (
            [{"labels": np.zeros(3, int)}, {"labels": np.zeros(0, int)}],
            "at least one token, got none in example 1; leave it out",
        ),
    ],
)
def test_buckets_refuse_examples_that_cannot_be_batched(examples, rule):
    with pytest.raises(DataError, match=rule):
        BucketedBatches(examples, batch_tokens=53)
