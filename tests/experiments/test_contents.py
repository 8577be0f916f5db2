"""The pages: each step with its formula, code, tables and figures, and the links between them."""

import exhibits
import numpy as np
import pytest
import run_all
from contents import Contents, drafted
from encoder_steps import show_position_loop
from listings import listing
from mistaken import scaled_scores, softmax
from positions import positions_by_loop
from steps import Document, Shown, Side, Step, Table

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
            {"unit_table": viz.position_heatmap(np.eye(3))},
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


def test_code_stands_where_a_chapter_first_uses_it_and_is_linked_to_from_there_on(tmp_path):
    steps = [Step(title, None, show_position_loop) for title in ("First", "Again")]
    pages = write(tmp_path, ("one", steps), ("two", steps[1:]))
    anchors = [
        "encoder_steps-show_position_loop", "positions-positions_by_loop",
        "encoder_steps-_position_table",
    ]  # fmt: skip
    for name, links in (("one.html", anchors), ("two.html", [])):
        page = pages[name]
        assert [identifier for identifier in page.ids if identifier in anchors] == anchors
        assert [link[1:] for link in page.links if link[1:] in anchors] == links
        code = "".join(page.code)
        assert code.count("def ") == len(anchors)
        assert listing(positions_by_loop) in code and "Feature 2i of position" not in code


def test_sides_stand_beside_each_other_with_wrong_cells_marked(tmp_path):
    tables = [Table(["a", "b"], ["r"], [[1, n]]) for n in (2, 3)]
    tables[0] = Table(["a", "b"], ["r"], [[1, 2]], marked=[[False, True]])
    sides = [
        Side("Mistaken", "Weights", "w = 1", softmax, tables[0]),
        Side("Right", "Weights", "w = 2", scaled_scores, tables[1]),
    ]
    pages = write(tmp_path, ("name", [Step("One", None, lambda: Shown("Text.", sides=sides))]))
    (below,) = [pages["name.html"].sections[key] for key in pages["name.html"].sections if key]
    assert below == [
        "Text.",
        "Mistaken", "name_01_mistaken_formula_1.svg", "mistaken.py",
        "Weights", "a", "b", "r", "1", "2",
        "Right", "name_01_right_formula_1.svg", "mistaken.py",
        "Weights", "a", "b", "r", "1", "3",
    ]  # fmt: skip
    text = (tmp_path / "name.html").read_text(encoding="utf-8")
    assert text.count('<td class="marked">') == 1 and '<td class="marked">2</td>' in text


def test_chapters_lead_to_each_other(tmp_path):
    step = Step("One", None, lambda: Shown("Text."))
    pages = write(tmp_path, *((name, [step]) for name in ("a", "b", "c")))  # by `check_site`
    assert pages["b.html"].turns == {"prev": "a.html", "next": "c.html"}


def test_draft_that_is_not_finished_leaves_what_was_there(tmp_path):
    with drafted(tmp_path / "out") as draft:
        (draft / "index.html").write_text("first")
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), drafted(tmp_path / "out") as draft:
            (draft / "index.html").write_text("second")
            raise error
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["index.html"]
    assert (tmp_path / "out" / "index.html").read_text() == "first"


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
