"""Every row of docs/coming-from.md: the text of both its cells, evaluated, gives the same.

Where the other library is not installed, only this library's cell is evaluated. The page says which
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

from tests.docs.pages import blocks, run

PATH = "docs/coming-from.md"
PAGE = pathlib.Path(PATH).read_text(encoding="utf-8")
SECTIONS = {part.splitlines()[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)}
ROW = re.compile(r"^\| ([\w-]+) \| `([^`]+)` \| `([^`]+)` \| [^|]+ \|$", flags=re.MULTILINE)
ROWS = {
    (section, name): (theirs, code)
    for section, part in SECTIONS.items()
    for name, theirs, code in ROW.findall(part)
}
MASKS = {"causal-mask", "padding-mask", "segments", "combine"}
HEADS_FIRST = {"sdpa", "mask", "bias", "causal", "causal-last", "grouped", "dropout"}


@pytest.fixture(scope="module")
def namespaces():
    """What the code blocks define, by section."""
    namespace, by_section = {}, {}
    with jax.numpy_rank_promotion("allow"):
        for section, part in SECTIONS.items():
            for code in blocks(part, "python"):
                run(code, PATH, namespace)
            by_section[section] = dict(namespace)
    return by_section


@pytest.fixture(scope="module")
def theirs(namespaces):
    """A function of a row to what the other library's code of its section defines, made once."""
    by_section = {}

    def namespace(section, name):
        code = "".join(blocks(SECTIONS[section], "python", fence="~~~"))
        needed = re.findall(r"^(?:import|from) (\w+)", code, flags=re.MULTILINE)
        if name == "trainer":
            needed.append("accelerate")  # which the Trainer of transformers needs
        for library in needed:
            if importlib.util.find_spec(library) is None:
                pytest.skip(f"{library} is not installed")
        if section not in by_section:
            namespace = dict(namespaces[section])
            run(code, PATH, namespace)
            by_section[section] = namespace
        return by_section[section]

    return namespace


def compare(name, result, theirs):
    if isinstance(result, list):  # of rows of different lengths
        rows = [[np.asarray(row).tolist() for row in side] for side in (result, theirs)]
        assert rows[0] == rows[1]
        return
    result, theirs = (np.asarray(side, np.float64) for side in (result, theirs))
    if name == "dropout":  # each weight is dropped or not, which the two do differently
        assert all(0.2 < (side == 0).mean() < 0.8 for side in (result, theirs))
        result = np.where((result == 0) | (theirs == 0), theirs, result)
    if name in MASKS:  # size 1, or no axis, where a mask does not vary
        result, theirs = np.broadcast_arrays(result, theirs)
    np.testing.assert_allclose(result, theirs, rtol=1e-4, atol=1e-5)


def test_every_row_of_the_page_is_read():
    lines = re.findall(r"^\| (?!row \|)[\w-]+ \|.*$", PAGE, flags=re.MULTILINE)
    assert len(lines) == len(ROWS) >= 40


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_both_cells_of_a_row_give_the_same(row, namespaces, theirs):
    section, name = row
    other_code, code = ROWS[row]
    with warnings.catch_warnings(), jax.numpy_rank_promotion("allow"):
        result = eval(code, namespaces[section])
        warnings.simplefilter("ignore")  # what other libraries warn of is theirs
        other = eval(other_code, theirs(section, name))
        if hasattr(other, "detach"):
            other = other.detach()
            if section == "PyTorch" and name in HEADS_FIRST:
                other = other.transpose(1, 2)
            other = other.numpy()
    compare(name, result, other)
