import dataclasses

import pytest

from jaxformer.errors import DataError
from jaxformer.text import Table
from tests.text.corpora.splits import split


@dataclasses.dataclass(frozen=True)
class Aligned(Table):
    """A kind of table as a user may write it, with three columns."""

    unit = "sentences"
    layout = "words, tab, tags, tab, domain"
    inputs = ("words",)

    words: tuple[str, ...]
    tags: tuple[str, ...]
    domains: tuple[str, ...]


def test_own_kind_of_table_is_read_by_its_columns(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("A dog\tDET N\tnews\nA dog\tDET N\n\nHe sleeps\t PRON V \tchat\nHe\t\tchat\n")
    table, counts = Aligned.read([str(path)])
    words, tags, domains = ("A dog", "He sleeps"), ("DET N", "PRON V"), ("news", "chat")
    assert table == Aligned(words, tags, domains, lines=("1", "4"))
    assert str(counts) == "5 sentences read, 2 kept; 1 empty (line 5), 2 misaligned (lines 2, 3)"


def test_own_kind_of_table_says_how_a_line_should_look(tmp_path):
    (tmp_path / "a.tsv").write_text("A dog\tDET N\n")
    rule = "the sentences must be usable, .*; each line must be words, tab, tags, tab, domain"
    with pytest.raises(DataError, match=rule):
        Aligned.read([str(tmp_path / "a.tsv")])


def test_split_of_own_kind_keeps_inputs_apart_and_no_other_column():
    words = tuple(f"words {i % 23}" for i in range(31))
    table = Aligned(words, ("N",) * 31, ("news",) * 31)
    train, validation, counts = split(table, 0.3)
    assert isinstance(train, Aligned) and isinstance(validation, Aligned)
    assert not set(train.words) & set(validation.words)
    assert set(train.tags) == set(validation.tags) == {"N"}
    assert counts.kept == len(train) + len(validation)


def test_take_keeps_the_order_of_the_indices():
    table = Aligned(tuple("abc"), tuple("xyz"), tuple("uvw"))
    assert table.take([2, 0]) == Aligned(("c", "a"), ("z", "x"), ("w", "u"), lines=("3", "1"))
