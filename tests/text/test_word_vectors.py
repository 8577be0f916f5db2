import gzip

import numpy as np
import pytest

from jaxformer.errors import DataError
from jaxformer.text import read_word_vectors, train_word

LINES = ["the 0.5 -1e-2 3", "a .25 +4. 1E2", "cat 7 8 9"]


def written(folder, lines, name="vectors.txt", end="\n"):
    content = end.join([*lines, ""]).encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(folder / name)


@pytest.mark.parametrize(
    "lines, name, end",
    [
        (LINES, "glove.txt", "\n"),
        (["3 3", *LINES], "word2vec.txt", "\n"),
        (["3 3 ", *(f"{line} " for line in LINES)], "word2vec.txt.gz", "\r\n"),
    ],
)
def test_vectors_of_the_words_are_read_in_the_order_of_the_file(tmp_path, lines, name, end):
    found = read_word_vectors(written(tmp_path, lines, name, end), {"a": 5, "the": 7, "dog": 2})
    np.testing.assert_array_equal(found.vectors, np.float32([[0.5, -0.01, 3], [0.25, 4, 100]]))
    assert found.ids.tolist() == [7, 5]
    assert (found.vectors.dtype, found.ids.dtype) == (np.float32, np.int32)
    assert (found.read, found.repeated) == (3, 0)


def test_vectors_are_found_for_the_words_of_a_tokenizer(tmp_path):
    tokenizer = train_word(["the cat sat"])
    found = read_word_vectors(written(tmp_path, LINES), tokenizer.words)
    assert [tokenizer.decode([i]) for i in found.ids] == ["the", "cat"]


def test_words_may_have_spaces_inside(tmp_path):
    lines = ["the 1 2", ". . . 3 4", "at name@domain.com 5 6", "a\u00a0b\u2028c 7 8"]
    words = {". . .": 1, "at name@domain.com": 2, "a\u00a0b\u2028c": 3}
    found = read_word_vectors(written(tmp_path, lines), words)
    assert found.ids.tolist() == [1, 2, 3]
    assert found.vectors.tolist() == [[3, 4], [5, 6], [7, 8]]


def test_words_that_are_numbers_have_vectors(tmp_path):
    found = read_word_vectors(written(tmp_path, ["2026 1 2", "7 3 4"]), {"7": 1, "2026": 0})
    assert found.ids.tolist() == [0, 1]


def test_first_vector_of_a_repeated_word_counts(tmp_path):
    found = read_word_vectors(written(tmp_path, ["a 1 2", "a 3 4", "b 5 6", "b 7 8"]), {"a": 0})
    assert found.vectors.tolist() == [[1, 2]]
    assert (found.read, found.repeated) == (4, 1)


@pytest.mark.parametrize("header", [[], ["3 2"]], ids=["glove", "word2vec"])
@pytest.mark.parametrize(
    "line, rule",
    [
        ("b 3", "a word and 2 numbers, got 2 fields in line {} of '.*vectors.txt'; get the"),
        ("b 3 4 5", "a word and 2 numbers, got 4 fields in line {} of"),
        ("b -.5e3 4 5", "a word and 2 numbers, got 4 fields in line {} of"),
        ("", "a word and 2 numbers, got 1 fields in line {} of"),
        ("b 3 x", "followed by 2 numbers, got line {} of .*: .*: 'x'; get the file again"),
        ("b 3\t4 5", r"followed by 2 numbers, got line {} of .*: .*: '3\\t4'; get the"),
        ("b nan 5", "must be finite in float32, got nan in line {} of"),
        ("b 3 -inf", "must be finite in float32, got -inf in line {} of"),
        ("b 1e39 3", "must be finite in float32, got 1e39 in line {} of"),
    ],
)
def test_bad_lines_are_named_though_their_word_is_not_wanted(tmp_path, header, line, rule):
    path = written(tmp_path, [*header, "a 1 2", line, "c 1 2"], "vectors.txt")
    with pytest.raises(DataError, match=rule.format(2 + len(header))) as error:
        read_word_vectors(path, {"a": 0})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("count", [2, 1_004])
def test_number_of_vectors_must_be_the_one_of_the_first_line(tmp_path, count):
    path = written(tmp_path, [f"{count} 3", *LINES])
    with pytest.raises(DataError, match=f"got 3 instead of {count:,} in '.*vectors.txt'; get the"):
        read_word_vectors(path, {"a": 0})


@pytest.mark.parametrize("first", ["", "word", "3 0"])
def test_vectors_must_have_numbers(tmp_path, first):
    path = written(tmp_path, [first] if first else [], end="\n")
    with pytest.raises(DataError, match=f"at least 1 number each, got the first line '{first}' of"):
        read_word_vectors(path, {"a": 0})


def test_at_least_one_word_must_be_found(tmp_path):
    rule = "at least one of the 2 words must have a vector, got none among the 3 of .*; check"
    with pytest.raises(DataError, match=rule):
        read_word_vectors(written(tmp_path, LINES), {"The": 0, "CAT": 1})


def test_missing_or_damaged_file_is_named(tmp_path):
    with pytest.raises(DataError, match="missing.txt': No such file or directory"):
        read_word_vectors(str(tmp_path / "missing.txt"), {"a": 0})
    (tmp_path / "plain.gz").write_bytes(b"a 1 2\n")
    with pytest.raises(DataError, match="damaged '.*plain.gz': Not a gzipped file"):
        read_word_vectors(str(tmp_path / "plain.gz"), {"a": 0})
