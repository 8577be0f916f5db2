"""The pages: each step with its formula, code, tables and figures, and the links between them."""

import exhibits
import numpy as np
import run_all
from contents import Contents
from steps import Document, Shown, Step, Table

from jaxformer import viz
from tests.experiments.website import check_site


def write(folder, *chapters):
    """Pages of a folder with these chapters, of these steps each."""
    contents = Contents(folder)
    for name, steps in chapters:
        contents.add(Document(name, f"Title of {name}", "a book", f"About {name}.", steps))
    contents.write("All of it", "What `this` is.")
    return check_site(folder, [f"{name}.html" for name, _ in chapters])


def test_page_has_all_that_a_step_shows_beside_it(tmp_path):
    def everything():
        return Shown(
            "Less is < `more`.",
            {"Two & two": Table(["a", "b"], ["x <1>"], [[1.5, 2.25]], digits=1)},
            {"unit_table": viz.position_heatmaps({"": np.eye(3)})},
            {"unit_table": "Ones on the diagonal."},
            {"viewer": "<!doctype html>"},
        )

    steps = [
        Step("First", (3, 7), everything, r"x < \frac{1}{2} \\ y = x^\top"),
        Step("Second", None, lambda: Shown("Nothing else.")),
    ]
    pages = write(tmp_path, ("name", steps))
    below = pages["name.html"].sections
    assert below["1. First lines 3 to 7"] == [
        "Less is <", "more", ".", "name_01_formula_1.svg", "name_01_formula_2.svg",
        "name_01_unit_table.png", "Ones on the diagonal.",
        "Two & two", "a", "b", "x <1>", "1.5", "2.2", "Open viewer", "test_contents.py",
    ]  # fmt: skip
    assert below["2. Second "][0] == "Nothing else."
    assert pages["index.html"].links == ["name.html", "name.html#name-1", "name.html#name-2"]
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert sorted(files) == [
        "index.html", "name.html", "name_01_formula_1.svg", "name_01_formula_2.svg",
        "name_01_two_two.csv", "name_01_unit_table.png", "name_01_viewer.html",
    ]  # fmt: skip
    assert files["name_01_two_two.csv"].decode() == ",a,b\r\nx <1>,1.5,2.2\r\n"
    assert files["name_01_unit_table.png"].startswith(b"\x89PNG")


def test_every_step_of_a_document_has_a_formula_that_can_be_drawn():
    from matplotlib.mathtext import MathTextParser

    steps = [step for document in run_all.DOCUMENTS[:4] for step in document.steps]
    formulas = [line for step in steps for line in step.formula.split(r" \\ ")]
    formulas += [mistake.mistaken_formula for mistake in exhibits.MISTAKES]
    formulas += [mistake.cure_formula for mistake in exhibits.MISTAKES]
    assert len(formulas) > 85
    parser = MathTextParser("path")
    for formula in formulas:
        assert parser.parse(f"${formula}$", dpi=72).width > 5
