import collections

import pytest

from jaxformer.errors import ConfigError, DataError
from jaxformer.text import synthetic_pairs, train_word

OPTIONS = dict(num_pairs=101, num_validation=19, num_symbols=11, min_len=3, max_len=7, seed=5)
TASKS = {"copy": list, "reverse": lambda words: words[::-1], "sort": sorted}


@pytest.mark.parametrize("task", TASKS)
def test_targets_solve_the_task(task):
    training, validation = synthetic_pairs(task, **OPTIONS)
    for (sources, targets), count in ((training, 101), (validation, 19)):
        assert len(sources) == len(targets) == count
        for source, target in zip(sources, targets, strict=True):
            assert target.split(" ") == TASKS[task](source.split(" "))
    words = {word for source in training[0] + validation[0] for word in source.split(" ")}
    assert words == {f"s{symbol:02d}" for symbol in range(11)}


def test_tasks_differ_in_the_targets_only():
    copy, reverse, sort = (synthetic_pairs(task, **OPTIONS) for task in TASKS)
    assert copy[0][0] == reverse[0][0] == sort[0][0]
    assert copy[1][1] != reverse[1][1] != sort[1][1]


def test_sequences_are_distinct_across_both_parts():
    (training, _), (validation, _) = synthetic_pairs("sort", **OPTIONS)
    assert len({*training, *validation}) == 101 + 19


def test_lengths_are_uniform():
    (training, _), (validation, _) = synthetic_pairs("copy", **OPTIONS)
    lengths = collections.Counter(len(source.split()) for source in training + validation)
    assert lengths == dict.fromkeys(range(3, 8), 24)
    # Both parts have all lengths, in a random order.
    assert {len(source.split()) for source in validation} == set(range(3, 8))
    assert list(training) != sorted(training, key=len)


def test_short_lengths_give_all_they_have():
    (training, _), (validation, _) = synthetic_pairs("copy", **(OPTIONS | dict(min_len=1)))
    lengths = collections.Counter(len(source.split()) for source in training + validation)
    assert lengths == {1: 11, 2: 18, 3: 18, 4: 18, 5: 18, 6: 18, 7: 19}


@pytest.mark.parametrize("num_symbols, exist", [(3, 3 + 9 + 27), (1, 3)])
def test_every_sequence_can_be_asked_for_and_no_more(num_symbols, exist):
    options = dict(num_symbols=num_symbols, min_len=1, max_len=3, seed=0, num_validation=1)
    (training, _), (validation, _) = synthetic_pairs("copy", num_pairs=exist - 1, **options)
    assert len({*training, *validation}) == exist
    with pytest.raises(
        ConfigError,
        match=rf"got {exist} of {num_symbols} symbols and lengths 1 to 3 .* = {exist + 1};",
    ):
        synthetic_pairs("copy", num_pairs=exist, **options)


def test_words_have_two_digits_at_least():
    (sources, _), _ = synthetic_pairs("copy", **(OPTIONS | dict(num_symbols=3)))
    assert {word for source in sources for word in source.split()} == {"s00", "s01", "s02"}


def test_pairs_depend_on_the_seed():
    pairs = [synthetic_pairs("copy", **(OPTIONS | dict(seed=seed))) for seed in (5, 5, 6)]
    assert pairs[0] == pairs[1] != pairs[2]


def test_word_tokenizer_reads_each_symbol_as_a_token():
    (sources, targets), _ = synthetic_pairs("sort", **(OPTIONS | dict(num_symbols=1001)))
    tokenizer = train_word(sources)
    assert {len(word) for source in sources for word in source.split()} == {5}
    for source, target in zip(sources, targets, strict=True):
        tokens = tokenizer.encode(source)
        assert len(tokens) == len(source.split())
        assert tokenizer.decode(tokens) == source
        assert target.split() == sorted(source.split(), key=lambda word: int(word[1:]))


@pytest.mark.parametrize(
    "task, options, rule",
    [
        ("add", {}, "one of copy, reverse, sort, got 'add'"),
        ("copy", dict(num_pairs=0), "got num_pairs=0,"),
        ("copy", dict(num_validation=-1), "num_validation=-1 and"),
        ("copy", dict(num_symbols=0), "num_symbols=0,"),
        ("copy", dict(min_len=0), "min_len=0,"),
        ("copy", dict(max_len=2), "min_len=3, .* max_len=2; raise"),
    ],
)
def test_pairs_refuse_impossible_settings(task, options, rule):
    with pytest.raises(ConfigError, match=rule):
        synthetic_pairs(task, **(OPTIONS | options))


def test_pairs_refuse_a_negative_seed():
    with pytest.raises(DataError, match="seed must be at least 0, got -3; try 3"):
        synthetic_pairs("copy", **(OPTIONS | dict(seed=-3)))
