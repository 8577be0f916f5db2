import pytest

from jaxformer.text import RowCounts, count_shared


def test_counts_without_drops_say_so_in_a_line():
    assert str(RowCounts("texts", 29_000)) == "29,000 texts read, 29,000 kept"
    assert RowCounts("texts", 7).drop("empty", []) == RowCounts("texts", 7)


def test_counts_name_every_reason_with_its_first_lines():
    counts = RowCounts("pairs", read=1_100)
    counts = counts.drop("too_long", ["5", "7"]).drop("misaligned", ["3"]).drop("empty", ["2"])
    counts = counts.drop("repeated", [str(i) for i in range(1_000)]).drop("too_long", ["11", "13"])
    assert counts.kept == 94
    assert (counts.empty, counts.misaligned, counts.too_long, counts.repeated) == (1, 1, 4, 1_000)
    assert counts.first_dropped["too_long"] == ("5", "7", "11")
    assert str(counts) == (
        "1,100 pairs read, 94 kept; 1 empty (line 2), 1 misaligned (line 3), "
        "4 too long (lines 5, 7, 11, ...), 1,000 repeating validation text (lines 0, 1, 2, ...)"
    )


def test_counts_of_exactly_three_lines_name_them_all():
    counts = RowCounts("pairs", 7).drop("empty", ["2", "3", "5"])
    assert str(counts) == "7 pairs read, 4 kept; 3 empty (lines 2, 3, 5)"


def test_counts_given_without_lines_are_printed_without():
    assert str(RowCounts("pairs", 7, empty=2)) == "7 pairs read, 5 kept; 2 empty"


@pytest.mark.parametrize("training, shared", [([], 0), (["b", "b"], 1), (["c", "a", "b"], 3)])
def test_shared_texts_are_counted_as_often_as_validation_has_them(training, shared):
    assert count_shared(training, ["a", "b", "a"]) == shared
