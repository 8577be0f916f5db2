"""Rows of TSV and CSV files, and the counts of those that are left out."""

import pytest

from jaxformer.errors import DataError
from jaxformer.text import Counts, Labelled, Pairs

CSV = 'id,label,text\n1,good,"Great, truly ""great"""\n\n2,bad,"Boring.\nVery."\n3,good\n'


def read(folder, name, content, table=Labelled):
    (folder / name).write_text(content, encoding="utf-8")
    return table.read([str(folder / name)])


def test_columns_of_a_csv_file_are_those_that_its_header_names(tmp_path):
    labelled, counts = read(tmp_path, "a.csv", f"\ufeff{CSV}")
    assert labelled.texts == ('Great, truly "great"', "Boring.\nVery.")
    assert labelled.labels == ("good", "bad") and labelled.lines == ("2", "5")
    assert str(counts) == "3 texts read, 2 kept; 1 misaligned (line 6)"


def test_header_of_a_tsv_file_is_no_row(tmp_path):
    labelled, _ = read(tmp_path, "a.tsv", "Label\tID\tText\ngood\t7\tGreat!\n")
    assert (labelled.texts, labelled.labels) == (("Great!",), ("good",))
    pairs, counts = read(tmp_path, "b.tsv", "source\ttarget\nA dog.\tEin Hund.\n", Pairs)
    assert (pairs.sources, pairs.targets, pairs.lines) == (("A dog.",), ("Ein Hund.",), ("2",))
    assert counts.read == 1


def test_csv_file_needs_a_header(tmp_path):
    rule = r"have a header with source and target, got the columns \['A dog.', 'Ein Hund.'\]"
    with pytest.raises(DataError, match=rule):
        read(tmp_path, "a.csv", "A dog.,Ein Hund.\n", Pairs)
    with pytest.raises(DataError, match=r"b.csv:1: a row must be CSV, got field larger"):
        read(tmp_path, "b.csv", f'"{"x" * 200_000}",y\n', Pairs)


def test_quotes_of_tsv_are_text(tmp_path):
    labelled, _ = read(tmp_path, "a.tsv", '"Great"\tgood\n"So" so\tbad\n')
    assert labelled.texts == ('"Great"', '"So" so')


def test_counts_name_every_reason_with_its_first_lines():
    assert str(Counts("texts", 29_000)) == "29,000 texts read, 29,000 kept"
    counts = Counts("pairs", read=1_100)
    for reason, lines in (("too long", "57"), ("empty", "2"), ("too long", "89"), ("odd", "123")):
        for line in lines:
            counts.drop(reason, line)
    assert counts.kept == 1_092 and counts.dropped == {"too long": 4, "empty": 1, "odd": 3}
    assert str(counts) == (
        "1,100 pairs read, 1,092 kept; 1 empty (line 2), 3 odd (lines 1, 2, 3), "
        "4 too long (lines 5, 7, 8, ...)"
    )
