import functools

import numpy as np
import pytest

from jaxformer.errors import ConfigError, DataError
from jaxformer.text import (
    IGNORE,
    Batches,
    BucketedBatches,
    Host,
    PackedDocuments,
    TokenStream,
    Windows,
)
from jaxformer.text.store.arrays import JoinedArray
from tests.text.arrays import assert_hosts_share, assert_same

SIZE, LENGTH = 127, 3  # 42 sequences.
STREAM = TokenStream(np.arange(1, SIZE + 1), np.arange(0, SIZE, 11))
WINDOWS = Windows(STREAM, LENGTH)


def first_tokens(batches, steps):
    """The first token of each row, which tells which item of WINDOWS it is."""
    return [token for step in steps for token in batches[step]["tokens"][:, 0].tolist()]


def test_batches_are_rows_of_the_source():
    packed = PackedDocuments(STREAM, LENGTH)
    batch = Batches(packed, 5, seed=7)[2]
    assert set(batch) == {"tokens", "labels", "segment_ids", "positions"}
    for row in range(5):
        item = packed[(int(batch["tokens"][row, 0]) - 1) // LENGTH]
        assert_same({name: array[row] for name, array in batch.items()}, item)
    assert all(array.dtype == np.int32 for array in batch.values())
    assert all(array.shape == (5, LENGTH) for array in batch.values())


def test_batches_depend_on_seed_and_step_only():
    batches, again = Batches(WINDOWS, 5, seed=7), Batches(WINDOWS, 5, seed=7)
    for step in (13, 0, 2**40, 13, 1):
        assert_same(batches[step], again[step])
    assert first_tokens(batches, range(8)) != first_tokens(Batches(WINDOWS, 5, seed=8), range(8))


@pytest.mark.parametrize("batch_size", [7, 5, 42, 101])
def test_every_epoch_has_each_item_once_in_another_order(batch_size):
    epochs = 5
    steps = range(-(-epochs * len(WINDOWS) // batch_size))
    rows = np.array(first_tokens(Batches(WINDOWS, batch_size, seed=7), steps))
    orders = rows[: epochs * len(WINDOWS)].reshape(epochs, len(WINDOWS))
    for order in orders:
        assert sorted(order.tolist()) == list(range(1, SIZE, LENGTH))
    assert len({tuple(order) for order in orders.tolist()}) == epochs
    assert orders[0].tolist() != sorted(orders[0].tolist())


SHARDS = JoinedArray([STREAM.tokens[:31], STREAM.tokens[31:31], STREAM.tokens[31:]])
SHARDED = PackedDocuments(TokenStream(SHARDS, STREAM.offsets), LENGTH)


@pytest.mark.parametrize("source", [WINDOWS, SHARDED])
@pytest.mark.parametrize("num_hosts", [2, 4])
def test_hosts_rows_make_up_the_global_batch(source, num_hosts):
    # Step 3 has the end of an epoch and the start of the next.
    make = functools.partial(Batches, source, 12, seed=7)
    assert_hosts_share(lambda host: make(host=host), num_hosts, steps=(0, 3, 17))


def test_tokens_of_several_files_are_those_of_one():
    batches = (Batches(source, 12, seed=7) for source in (SHARDED, PackedDocuments(STREAM, LENGTH)))
    assert_same(*(batch[3] for batch in batches))


@pytest.mark.parametrize("batch_size", [1, 8, 42, 101])
def test_evaluation_has_each_item_once_in_order(batch_size):
    batches = list(Batches(WINDOWS, batch_size).once())
    assert all(batch["tokens"].shape == (batch_size, LENGTH) for batch in batches)
    labels = np.concatenate([batch["labels"] for batch in batches])
    np.testing.assert_array_equal(labels[labels != IGNORE], STREAM.tokens[1:])
    assert len(labels) - len(WINDOWS) < batch_size
    tokens = np.concatenate([batch["tokens"] for batch in batches])
    assert not tokens[len(WINDOWS) :].any()
    assert (labels[len(WINDOWS) :] == IGNORE).all()


@pytest.mark.parametrize("index, count", [(4, 4), (-1, 4), (0, 0)])
def test_host_is_one_of_their_count(index, count):
    with pytest.raises(DataError, match=f"got index={index} and count={count}; use jax.process_i"):
        Host(index, count)


@pytest.mark.parametrize(
    "error, source, batch_size, host, rule",
    [
        (ConfigError, WINDOWS, 10, Host(0, 4), "batch_size=10 and host.count=4; try 8"),
        (ConfigError, WINDOWS, 3, Host(0, 4), "batch_size=3 and host.count=4; try 4"),
        (ConfigError, WINDOWS, 0, Host(), "batch_size=0 and host.count=1; try 1"),
        (ConfigError, WINDOWS, -8, Host(0, 4), "batch_size=-8 and host.count=4; try 4"),
        (DataError, [], 8, Host(), "at least one row, got none; add text"),
    ],
)
def test_batches_refuse_what_cannot_be_made(error, source, batch_size, host, rule):
    with pytest.raises(error, match=rule):
        Batches(source, batch_size, host=host)


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(Batches, WINDOWS, 5),
        functools.partial(BucketedBatches, [{"labels": np.zeros(3, int)}], batch_tokens=3),
    ],
)
def test_batches_refuse_a_negative_seed_and_a_negative_step(make):
    with pytest.raises(DataError, match="seed must be at least 0, got -3; try 3"):
        make(seed=-3)
    with pytest.raises(IndexError, match="at least 0, got -1"):
        make(seed=7)[-1]
