import pytest

from jaxformer.errors import DataError
from jaxformer.viz import time_bars


def test_bars_are_milliseconds_with_shares_of_their_group():
    groups = {
        "device": {"attention": 0.03, "feed-forward": 0.01},
        "none": {},
        "host": {"saving": 0.002},
    }
    axes = time_bars(groups, title="Time").axes[0]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([30, 10, 2])
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "attention", "feed-forward", "saving",
    ]  # fmt: skip
    assert [text.get_text() for text in axes.texts] == ["30 ms (75%)", "10 ms (25%)", "2 ms"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["device", "host"]
    assert axes.get_title() == "Time" and axes.get_legend() is not None


def test_one_group_needs_no_legend():
    assert time_bars({"device": {"attention": 0.03}}).axes[0].get_legend() is None


@pytest.mark.parametrize("groups", [{}, {"device": {}}, {"device": {"attention": 0.0}}])
def test_bars_of_nothing_are_refused(groups):
    with pytest.raises(DataError, match="at least one part that took time, got none"):
        time_bars(groups)
