import collections

import pytest

from jaxformer.errors import ConfigError
from jaxformer.text.synthetic import synthetic_pairs

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


def test_sequences_are_distinct_across_both_parts():
    (training, _), (validation, _) = synthetic_pairs("sort", **OPTIONS)
    assert len({*training, *validation}) == 101 + 19


@pytest.mark.parametrize(
    ("min_len", "expected"),
    [(3, dict.fromkeys(range(3, 8), 24)), (1, {1: 11, 2: 18, 3: 18, 4: 18, 5: 18, 6: 18, 7: 19})],
)
def test_lengths_are_uniform_as_far_as_there_are_so_many(min_len, expected):
    (training, _), (validation, _) = synthetic_pairs("copy", **OPTIONS | {"min_len": min_len})
    lengths = collections.Counter(len(source.split()) for source in training + validation)
    assert lengths == expected
    # Both parts have all lengths, in a random order.
    assert {len(source.split()) for source in validation} == set(range(min_len, 8))
    assert list(training) != sorted(training, key=len)


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


def test_pairs_depend_on_the_seed():
    pairs = [synthetic_pairs("copy", **(OPTIONS | dict(seed=seed))) for seed in (5, 5, 6)]
    assert pairs[0] == pairs[1] != pairs[2]
