import fractions
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxformer.errors import DataError
from jaxformer.text import (
    Batches,
    Host,
    MaskedBatches,
    Mixture,
    PackedDocuments,
    TokenStream,
    Windows,
)
from tests.text.arrays import assert_hosts_share

LENGTH = 3
WEIGHTS = {"web": 3, "code": 1, "books": 0.5}
SIZES = {"web": 67, "code": 23, "books": 41}
FIRST = {"web": 1000, "code": 2000, "books": 3000}


def stream(name):
    """A stream whose tokens tell its source."""
    tokens = np.arange(FIRST[name], FIRST[name] + SIZES[name], dtype=np.uint16)
    return TokenStream(tokens, np.arange(0, SIZES[name], 11))


def mixed(cut=Windows, weights=WEIGHTS):
    return Mixture({name: cut(stream(name), LENGTH) for name in weights}, weights)


def of_length(length):
    """A source of so many items, which are all alike."""
    return [{"x": np.zeros(1)}] * length


def names_of(batch):
    return [next(name for name in FIRST if 0 <= token - FIRST[name] < 1000)
            for token in batch["tokens"][:, 0].tolist()]  # fmt: skip


weights = st.lists(
    st.one_of(st.integers(1, 20), st.floats(1e-3, 1e3), st.sampled_from([0.1, 0.7, 1e-3])),
    min_size=1, max_size=7,
)  # fmt: skip


@given(weights, st.integers(0, 10**12))
def test_every_source_has_its_share_of_any_first_rows(values, start):
    names = [str(i) for i in range(len(values))]
    mixture = Mixture({name: of_length(1) for name in names}, dict(zip(names, values, strict=True)))
    exact = [fractions.Fraction(str(float(value))) for value in values]
    counts = mixture.counts(start)
    assert sum(counts.values()) == start
    for count, weight in zip(counts.values(), exact, strict=True):
        assert abs(count - start * weight / sum(exact)) <= len(values)
    for name, index in mixture.places(range(start, start + 30)):
        assert index == counts[name]
        counts[name] += 1
    assert counts == mixture.counts(start + 30)


@pytest.mark.parametrize(
    ("values", "parts"),
    [((0.7, 0.3), (7, 3)), ((1e-3, 1), (1, 1000)), ((3, 1), (3, 1)), ((1, 1.0049), (10000, 10049))],
)
def test_shares_are_those_of_the_decimals_and_do_not_drift(values, parts):
    mixture = Mixture({"a": of_length(1), "b": of_length(1)}, dict(zip("ab", values, strict=True)))
    counts = mixture.counts(sum(parts) * 10**6)
    assert tuple(counts.values()) == tuple(10**6 * part for part in parts)


def test_rows_are_those_that_the_names_say():
    batches = Batches(mixed(), 9, seed=7)
    for step in (0, 5, 2**33):
        names = batches.source_names(step)
        assert names == names_of(batches[step])
        assert {name: names.count(name) for name in WEIGHTS} == {"web": 6, "code": 2, "books": 1}
    assert Batches(Windows(stream("web"), LENGTH), 9, seed=7).source_names(3) is None


def test_a_mixture_is_not_read_once():
    with pytest.raises(DataError, match="a mixture has no end, got the sources web, code, books;"):
        next(Batches(mixed(), 9).once())


def test_each_source_goes_through_shuffled_epochs_of_its_own():
    mixture, epochs = mixed(), 3
    batches = Batches(mixture, 9, seed=7)
    rows = [int(row[0]) for step in range(200) for row in batches[step]["tokens"]]
    for name, source in mixture.sources.items():
        seen = [token for token in rows if 0 <= token - FIRST[name] < 1000]
        orders = np.array(seen[: epochs * len(source)]).reshape(epochs, len(source))
        every = [int(source[i]["tokens"][0]) for i in range(len(source))]
        assert all(sorted(order.tolist()) == every for order in orders)
        assert len({tuple(order) for order in [*orders.tolist(), every]}) == epochs + 1
    assert batches.batches_per_epoch is None
    assert mixture.epochs(200 * 9) == {
        name: mixture.counts(1800)[name] / len(source) for name, source in mixture.sources.items()
    }
    assert mixture.epochs(90) == {"web": 60 / 22, "code": 20 / 8, "books": 10 / 14}


def test_sources_of_one_length_have_orders_of_their_own():
    twins = {name: Windows(TokenStream(np.arange(301), np.array([0])), 3) for name in "ab"}
    batches = Batches(Mixture(twins, {"a": 1, "b": 1}), 200, seed=7)
    names, tokens = batches.source_names(0), batches[0]["tokens"][:, 0].tolist()
    first, second = ([t for t, n in zip(tokens, names, strict=True) if n == name] for name in "ab")
    assert sorted(first) == sorted(second) == list(range(0, 300, 3))
    assert sum(token == twin for token, twin in zip(first, second, strict=True)) < 10


def test_order_of_a_source_stays_when_another_is_added():
    few = Batches(mixed(weights={"web": 3, "code": 1}), 8, seed=7)
    many = Batches(mixed(), 9, seed=7)
    for name in ("web", "code"):
        rows = [
            [row[0] for step in range(9) for row in batches[step]["tokens"] if
             0 <= row[0] - FIRST[name] < 1000]
            for batches in (few, many)
        ]  # fmt: skip
        assert all(token == other for token, other in zip(*rows, strict=False))


@pytest.mark.parametrize("num_hosts", [2, 4])
@pytest.mark.parametrize("masks", [False, True])
def test_mixture_batches_are_equal_on_any_number_of_hosts(num_hosts, masks):
    def make(host):
        batches = Batches(mixed(PackedDocuments), 12, seed=7, host=host)
        if not masks:
            return batches
        return MaskedBatches(batches, seed=5, mask_token=5000, vocab_size=5001, host=host)

    assert_hosts_share(make, num_hosts, steps=(0, 3, 17, 2**33), once=False)
    names = [make(Host(index, num_hosts)).source_names(3) for index in range(num_hosts)]
    assert list(itertools.chain(*names)) == make(Host()).source_names(3)


@pytest.mark.parametrize(
    ("sources", "weights", "message"),
    [
        ({}, {}, r"must have sources, .*, got weights for \[\] and the sources \[\]"),
        ({"a": of_length(0)}, {"a": 1}, "must have at least one row, got none in 'a'; add text"),
        (
            {"a": of_length(1)},
            {"b": 1},
            r"got weights for \['b'\] and the sources \['a'\]; use the same",
        ),
        ({"a": of_length(1)}, {"a": 0}, "more than 0 and finite, got 0 for 'a'"),
        ({"a": of_length(1)}, {"a": -1.5}, "finite, got -1.5 for 'a'"),
        ({"a": of_length(1)}, {"a": float("inf")}, "finite, got inf for 'a'"),
        ({"a": of_length(1)}, {"a": float("nan")}, "finite, got nan for 'a'"),
    ],
)
def test_what_cannot_be_mixed_is_one_line(sources, weights, message):
    with pytest.raises(DataError, match=message) as error:
        Mixture(sources, weights)
    assert "\n" not in str(error.value)
