import pytest

from jaxformer.text import Counts
from jaxformer.text.tables.table import count_shared


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


@pytest.mark.parametrize("training, shared", [([], 0), (["b", "b"], 1), (["c", "a", "b"], 3)])
def test_shared_texts_are_counted_as_often_as_validation_has_them(training, shared):
    assert count_shared(training, ["a", "b", "a"]) == shared
