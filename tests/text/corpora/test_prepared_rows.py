"""Rows that are larger than memory: looked through, split, and encoded into files."""

import dataclasses

import numpy as np
import pytest

from jaxformer import text
from jaxformer.errors import DataError
from jaxformer.text.corpora import prepared
from jaxformer.text.corpora import scan as scan_module
from jaxformer.text.corpora.prepared_rows import prepare_rows
from jaxformer.text.store.ragged import ExampleArrays
from tests.runs import tiny
from tests.text.arrays import assert_same

BYTES = text.byte_tokenizer()
WORDS = "one two three four five six seven eight nine".split()
RNG = np.random.default_rng(0)


def pairs(count):
    """Different sources; some targets occur several times."""
    return [(f"{i} {WORDS[i % 9]}", f"{WORDS[i // 3 % 7]} {i // 3}") for i in range(count)]


def write(folder, rows, name="a.tsv"):
    return tiny.write(folder / name, ["\t".join(row) for row in rows])


def scan(folder, rows, fraction=0.25, table=text.Pairs, **options):
    return text.scan_corpus(table, [write(folder, rows)], validation_fraction=fraction, **options)


def encode(rows):
    return text.encode_pairs(rows, BYTES, BYTES)


def prepare(corpus, folder, max_len=12, encode=encode):
    return prepare_rows(corpus, encode, max_len, folder)


def assert_all_same(examples, expected):
    for example, other in zip(examples, expected, strict=True):
        assert_same(example, other)


@pytest.mark.parametrize("part_size", [40, 300, 10_000])
def test_prepared_rows_are_those_of_the_table(tmp_path, monkeypatch, part_size):
    monkeypatch.setattr(prepared, "_SMALLEST", part_size)
    corpus = scan(tmp_path, pairs(60))
    assert 5 < len(corpus.validation) < 30 and not corpus.is_sampled
    expected = text.fitting_rows(corpus.train, encode(corpus.train), 12).examples
    examples, counts = prepare(corpus, tmp_path / "cache")
    assert_all_same(examples, expected)
    assert counts.read == 60 == len(corpus.train) + len(corpus.validation)


def test_rows_that_cannot_be_used_are_counted_with_their_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(prepared, "_SMALLEST", 1)
    rows = [("a", "b"), ("", "c"), ("d", "e", "f"), ("long enough", "g"), ("h", "i")]
    corpus = scan(tmp_path, rows, fraction=0)
    assert corpus.validation is None
    examples, counts = prepare(corpus, tmp_path / "cache", 5)
    assert str(counts) == (
        "5 pairs read, 2 kept; 1 empty (line 2), 1 misaligned (line 3), 1 too long (line 4)"
    )
    assert [example["source_tokens"].tolist() for example in examples] == [[97, 256], [104, 256]]
    for folder in (tmp_path / "other", None):
        with pytest.raises(DataError, match="got none: 5 .* 3 too long .*; raise max_len, or"):
            prepare(corpus, folder, 1)


def test_labels_are_listed(tmp_path):
    rows = [(f"text {i}", f"label {i % 5}") for i in range(20)]
    corpus = scan(tmp_path, rows, table=text.Labelled)
    assert corpus.distinct == {"labels": tuple(f"label {i}" for i in range(5))}


def test_two_files_are_read_line_by_line(tmp_path):
    rows = pairs(40)
    paths = [
        tiny.write(tmp_path / name, [row[i] for row in rows]) for i, name in enumerate(["s", "t"])
    ]
    corpus = text.scan_corpus(text.Pairs, paths, validation_fraction=0.25)
    alone = scan(tmp_path, rows)
    assert corpus.validation == alone.validation and corpus.train == alone.train
    (tmp_path / "s").write_text("one\n")
    with pytest.raises(DataError, match="same number of lines, got only 1 in '.*s'"):
        text.scan_corpus(text.Pairs, paths, validation_fraction=0.25)


def test_sides_that_are_empty_or_too_large_are_refused(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="got an empty training side with .*: 1 pairs .* 1 empty"):
        scan(tmp_path, [("", "x")])
    monkeypatch.setattr(scan_module, "_VALIDATION", 50)
    monkeypatch.setattr(scan_module, "_SAMPLE", 50)
    with pytest.raises(DataError, match="for validation must be at most 50 bytes, .*; lower it"):
        scan(tmp_path, pairs(60))


def test_example_arrays_are_the_examples(tmp_path):
    examples = encode(text.Pairs(("ab", "c", "def"), ("x", "yz", "u")))
    arrays = ExampleArrays.of(examples)
    assert_all_same(arrays, examples)
    assert_same(arrays[-1], examples[2])
    assert arrays.lengths.tolist() == [3, 3, 4] and arrays.sizes("tokens").tolist() == [2, 3, 2]
    with pytest.raises(IndexError):
        arrays[3]


def test_scan_that_is_remembered_is_of_the_same_file_in_another_folder(tmp_path, monkeypatch):
    for name in "xy":
        (tmp_path / name).mkdir()
        tiny.write(tmp_path / name / "a.tsv", [f"{name} {i}\t{i}" for i in range(9)])
    monkeypatch.chdir(tmp_path / "x")
    options = {"validation_fraction": 0, "cache_dir": tmp_path / "cache"}
    text.scan_corpus(text.Pairs, ["a.tsv"], **options)
    monkeypatch.chdir(tmp_path / "y")
    corpus = text.scan_corpus(text.Pairs, ["../x/a.tsv"], **options)
    (part,) = corpus.parts(1000)
    assert part.rows[0].columns == ("x 0", "0")


def test_how_a_table_of_ones_own_reads_rows_is_not_remembered(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Loud(text.Pairs):
        @classmethod
        def rows(cls, paths, counts):
            for row in super().rows(paths, counts):
                yield row._replace(columns=list(map(change, row.columns)))

    path, options = write(tmp_path, [("a", "b")]), {"cache_dir": tmp_path / "cache"}
    sources = []
    for function in (str.lower, str.upper):
        change = function
        corpus = text.scan_corpus(Loud, [path], validation_fraction=0, **options)
        sources.append(corpus.train.sources)
    assert sources == [("a",), ("A",)]
