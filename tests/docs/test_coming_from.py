"""Every row of docs/coming-from.md: the text of both its cells, evaluated, against NumPy.

The other library's cell is skipped where that library is not installed. The page says which
versions of all of them it was last checked with, by this file.

To evaluate the rows takes a minute, so these tests are thorough; .ci/run runs them on one
Python.
"""

import importlib.util
import pathlib
import re
import warnings

import jax
import numpy as np
import pytest

from tests.docs.coming_from import EXPECTED
from tests.docs.pages import blocks, run

PATH = "docs/coming-from.md"
PAGE = pathlib.Path(PATH).read_text(encoding="utf-8")
SECTIONS = {part.splitlines()[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)}
ROW = re.compile(r"^\| ([\w-]+) \| `([^`]+)` \| `([^`]+)` \| [^|]+ \|$", flags=re.MULTILINE)
ROWS = {
    (section, name): (theirs, ours)
    for section, part in SECTIONS.items()
    for name, theirs, ours in ROW.findall(part)
}
MASKS = {"causal-mask", "padding-mask", "segments", "combine"}
HEADS_FIRST = {"sdpa", "mask", "bias", "causal", "causal-last", "grouped", "dropout"}


@pytest.fixture(scope="module")
def ours():
    """What the code blocks define, by section."""
    namespace, found = {}, {}
    with jax.numpy_rank_promotion("allow"):
        for section, part in SECTIONS.items():
            for code in blocks(part, "python"):
                run(code, PATH, namespace)
            found[section] = dict(namespace)
    return found


@pytest.fixture(scope="module")
def theirs(ours):
    """A function of a section to what its code for the other library defines, made once."""
    found = {}

    def namespace(section):
        code = "".join(blocks(SECTIONS[section], "python", fence="~~~"))
        needed = re.findall(r"^(?:import|from) (\w+)", code, flags=re.MULTILINE)
        if "Trainer(" in code:
            needed.append("accelerate")  # which the Trainer of transformers needs
        for library in needed:
            if importlib.util.find_spec(library) is None:
                pytest.skip(f"{library} is not installed")
        if section not in found:
            namespace = dict(ours[section])
            run(code, PATH, namespace)
            found[section] = namespace
        return found[section]

    return namespace


def compare(name, got, expected):
    if name == "dropout":  # each weight is dropped or not, which the two do differently
        dropped = np.asarray(got) == 0
        assert 0.2 < dropped.mean() < 0.8
        got = np.where(dropped, expected, got)
    if name in MASKS:  # size 1, or no axis, where a mask does not vary
        got = np.broadcast_to(np.asarray(got), expected.shape)
    if isinstance(got, list):  # of rows of different lengths
        assert [np.asarray(row).tolist() for row in got] == expected
        return
    np.testing.assert_allclose(np.asarray(got, np.float64), expected, rtol=1e-4, atol=1e-5)


def test_every_row_of_the_page_is_read_and_expected():
    lines = re.findall(r"^\| (?!row \|)[\w-]+ \|.*$", PAGE, flags=re.MULTILINE)
    assert len(lines) == len(ROWS) >= 40
    assert EXPECTED.keys() == ROWS.keys()


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_this_library_does_what_the_row_says(row, ours):
    section, name = row
    with jax.numpy_rank_promotion("allow"):
        got = eval(ROWS[row][1], ours[section])
    compare(name, got, EXPECTED[row](ours[section]))


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_the_other_library_does_the_same(row, ours, theirs):
    section, name = row
    with warnings.catch_warnings(), jax.numpy_rank_promotion("allow"):
        warnings.simplefilter("ignore")  # what other libraries warn of is theirs
        namespace = theirs(section)
        got = eval(ROWS[row][0], namespace)
        if hasattr(got, "detach"):
            got = got.detach()
            if section == "PyTorch" and name in HEADS_FIRST:
                got = got.transpose(1, 2)
            got = got.numpy()
    expected = EXPECTED[row](ours[section])
    compare(name, got, expected)
