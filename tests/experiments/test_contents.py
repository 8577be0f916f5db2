"""The page of contents, and what it shows of a trained run."""

import html.parser
import pathlib
import re

import numpy as np
import pytest
import run_all
import trained_translator
from contents import Contents
from steps import Document, Shown, Step, Table

from jaxformer import viz
from jaxformer.errors import CheckpointError, DataError


class Page(html.parser.HTMLParser):
    """Headings, with what stands below each: texts, cells, pictures and links."""

    def __init__(self, path):
        super().__init__()
        self.sections, self._open = {}, []
        self._below = self.sections.setdefault("", [])
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self._open.append(tag)
        names = {"img": "src", "a": "href"}
        if tag in names:
            self._below.append(dict(attributes)[names[tag]])
        if tag in ("img", "meta"):
            self._open.pop()
        if tag == "h3":
            self._heading = ""

    def handle_data(self, data):
        if "h3" in self._open:
            self._heading += data
        elif data.strip():
            self._below.append(data.strip())

    def handle_endtag(self, tag):
        self._open.pop()
        if tag == "h3":
            self._below = self.sections.setdefault(self._heading, [])


def test_page_has_all_that_a_step_shows_beside_it(tmp_path):
    figure = viz.position_heatmap(np.eye(3))
    shown = Shown(
        "Less is < `more`.",
        tables={"Two & two": Table(["a", "b"], ["x <1>"], [[1.5, 2.25]], digits=1)},
        figures={"unit_table": figure},
        captions={"unit_table": "Ones on the diagonal."},
        pages={"viewer": "<!doctype html>"},
    )
    steps = (
        Step("First", (3, 7), lambda: shown),
        Step("Second", None, lambda: Shown("Nothing else.")),
    )
    contents = Contents(tmp_path / "out")
    contents.add(
        Document(name="name", title="A title", about="About it.", source="a book", steps=steps)
    )
    path = contents.write("All of it", "What this is.")
    assert path == tmp_path / "out" / "index.html"
    below = Page(path).sections
    assert below["1. First lines 3 to 7"] == [
        "Less is <", "more", ".", "Two & two", "a", "b", "x <1>", "1.5", "2.2",
        "name_01_unit_table.png", "Ones on the diagonal.", "name_01_viewer.html", "Open viewer",
    ]  # fmt: skip
    assert below["2. Second "] == ["Nothing else."]
    assert {"#name", "#name-1", "#name-2"} <= set(below[""])
    files = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    assert sorted(files) == [
        "index.html", "name_01_two_two.csv", "name_01_unit_table.png", "name_01_viewer.html"
    ]  # fmt: skip
    assert files["name_01_two_two.csv"].decode() == ",a,b\r\nx <1>,1.5,2.2\r\n"
    assert files["name_01_unit_table.png"].startswith(b"\x89PNG")


def test_trained_translator_is_shown_from_its_run_folder(translation_run):
    run, _ = translation_run
    document = trained_translator.document(pathlib.Path(run))
    curve, alignment, heads, viewer = [step.show() for step in document.steps]
    assert list(curve.tables["Validation"].columns)[0] == "validation_loss"
    assert list(curve.figures) == ["training_curve"]
    (image,) = alignment.figures["cross_attention"].axes[0].images
    weights = image.get_array()
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
    assert weights.shape[1] == len(trained_translator.SENTENCE.split()) + 1  # the end of text
    assert list(heads.figures) == [
        "cross_attention_of_every_head",
        "encoder_self_attention_of_every_head",
        "decoder_self_attention_of_every_head",
    ]
    assert viewer.pages["attention"].startswith("<!doctype html>")


def test_all_is_written_and_everything_that_the_page_names_is_there(
    translation_run, tmp_path, monkeypatch
):
    monkeypatch.setattr(run_all, "DOCUMENTS", run_all.DOCUMENTS[1:2])
    run_all.run_all(tmp_path / "all", translation_run[0], "one two")
    page = (tmp_path / "all" / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r'(?:src|href)="([^"#]+)"', page))
    assert named == {
        file.name for file in (tmp_path / "all").iterdir() if file.suffix in (".png", ".html")
    } - {"index.html"}
    assert {
        "self_attention_by_hand_06_scores.png",
        "trained_translator_02_cross_attention.png",
        "trained_translator_04_attention.html",
    } <= named
    for anchor in re.findall(r'href="#([^"]+)"', page):
        assert page.count(f'id="{anchor}"') == 1


def test_mistakes_about_the_run_are_found_before_anything_is_written(
    translation_run, classification_run, tmp_path
):
    for run, sentence, error, message in [
        (tmp_path / "absent", "one", CheckpointError, "is not a run folder"),
        (classification_run[0], "one", CheckpointError, "a translator's run folder is needed"),
        (translation_run[0], "one " * 13, DataError, "at most max_len=12 tokens"),
    ]:
        with pytest.raises(error, match=message):
            run_all.run_all(tmp_path / "all", run, sentence)
    assert list(tmp_path.iterdir()) == []


def test_short_run_ends_its_schedule():
    config = trained_translator.short_config(pathlib.Path("runs/x"))
    assert config.schedule.decay_steps == config.training.steps
