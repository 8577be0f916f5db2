"""The page of contents, and what it shows of a trained run."""

import html.parser
import pathlib

import numpy as np
import pytest
import run_all
import trained_translator
from contents import Contents
from steps import Document, Shown, Step, Table

from jaxformer import viz


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
        "Less is < more.",
        tables={"Two & two": Table(["a", "b"], ["x <1>"], [[1.5, 2.25]], digits=1)},
        figures={"unit_table": figure},
        pages={"viewer": "<!doctype html>"},
    )
    steps = (
        Step("First", (3, 7), lambda: shown),
        Step("Second", None, lambda: Shown("Nothing else.")),
    )
    contents = Contents(tmp_path / "out")
    contents.add(Document("name", "A title", "About it.", steps))
    path = contents.write("All of it", "What this is.")
    assert path == tmp_path / "out" / "index.html"
    below = Page(path).sections
    assert below["1. First lines 3 to 7"] == [
        "Less is < more.", "Two & two", "a", "b", "x <1>", "1.5", "2.2",
        "name_01_unit_table.png", "unit table", "name_01_viewer.html", "Open viewer",
    ]  # fmt: skip
    assert below["2. Second"] == ["Nothing else."]
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
    assert list(curve.tables["Held out"].columns)[0] == "held_out_loss"
    assert list(curve.figures) == ["training_curve"]
    (image,) = alignment.figures["cross_attention_alignment"].axes[0].images
    weights = image.get_array()
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
    assert weights.shape[1] == len(trained_translator.SENTENCE.split()) + 1  # the end of text
    assert list(heads.figures) == [
        "cross_attention_of_every_head",
        "encoder_self_attention_of_every_head",
        "decoder_self_attention_of_every_head",
    ]
    assert viewer.pages["attention"].startswith("<!doctype html>")


def test_run_of_another_kind_is_refused(classification_run):
    with pytest.raises(SystemExit, match="a translator's run folder is needed"):
        trained_translator.document(pathlib.Path(classification_run[0]))


def test_documents_have_names_of_their_own_and_the_short_run_ends_its_schedule():
    names = [document.name for document in run_all.DOCUMENTS]
    assert len(set(names)) == len(names) == 5
    config = trained_translator.short_config(pathlib.Path("runs/x"))
    assert config.schedule.decay_steps == config.training.steps
