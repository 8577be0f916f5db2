"""Comparing with numbers that a document prints."""

import numpy as np


def assert_printed(actual, printed, *, decimals=4, input_error=0.0):
    """Equal to the decimals printed, and to what the rounding of printed inputs leaves open."""
    half = 0.5 * 10.0**-decimals
    allowed = np.asarray(half + input_error + 3e-7)  # the last for float32
    error = np.abs(np.asarray(actual, np.float64) - np.asarray(printed, np.float64))
    assert error.shape == np.shape(printed)
    assert (error <= allowed).all(), f"off by {error.max()}, allowed is {allowed.max()}"


def assert_shows(document, last_line):
    """Every step has text, whole tables without NaN, and figures with a sentence each.

    Returns:
        The names of all figures.
    """
    lines = [step.lines for step in document.steps]
    assert lines == sorted(lines)
    assert all(1 <= first <= last <= last_line for first, last in lines)
    figures = []
    for step in document.steps:
        shown = step.show()
        assert shown.text.endswith(".") and "nan" not in shown.text
        for caption in shown.captions.values():
            assert caption.endswith(".") and ". " not in caption  # one sentence
        for table in shown.tables.values():
            written = table.as_text()
            assert {len(row) for row in written} == {len(table.columns) + 1}
            assert "nan" not in [cell for row in written for cell in row]
        figures += shown.figures
    assert len(set(figures)) == len(figures)
    return figures
