import jax
import numpy as np
import pytest
from steps import Document, Shown, Side, Step, Table, main, print_document


@pytest.mark.parametrize(
    ("figures", "captions"), [(["curve"], []), ([], ["curve"]), (["curve"], ["curves"])]
)
def test_figure_without_caption_or_caption_without_figure_is_refused(figures, captions):
    with pytest.raises(ValueError, match="captions must be one for each figure"):
        Shown(
            "Text.", figures=dict.fromkeys(figures), captions=dict.fromkeys(captions, "It falls.")
        )


def test_step_says_its_lines():
    steps = [Step("One", lines, lambda: Shown("Text.")) for lines in ((3, 7), (326, 326), None)]
    assert [step.lines_text for step in steps] == ["lines 3 to 7", "line 326", ""]
    assert [step.heading for step in steps] == ["One (lines 3 to 7)", "One (line 326)", "One"]


def test_printed_document_has_its_source_tables_and_captions_and_the_digits_of_float32(capsys):
    def show():
        assert jax.config.jax_default_matmul_precision == "highest"
        table = Table(["a", "b"], ["row"], np.array([[1.0, 22.25]]), digits=1)
        return Shown("Text.", {"Two": table}, {"curve": ...}, {"curve": "It falls."}, {"page": ""})

    with jax.default_matmul_precision("default"):
        print_document(
            Document("name", "Title", "By nobody.", "About.", [Step("One", (2, 2), show)])
        )
    assert capsys.readouterr().out.splitlines() == [
        "Title", "By nobody.", "About.", "", "1. One (line 2)", "Text.", "",
        "Two", "       a     b", "row  1.0  22.2",
        "drawn by run_all.py: curve: It falls.", "drawn by run_all.py: page",
    ]  # fmt: skip


def test_printed_sides_have_their_titles_and_options_choose_the_steps(capsys, monkeypatch):
    def show():
        sides = [Side(t, "Weights", "w", show, Table(["a"], ["r"], [[n]])) for t, n in pairs]
        return Shown("Text.", sides=sides)

    def unwanted():
        raise AssertionError

    pairs = [("Mistaken", 1), ("Right", 2)]
    steps = [Step("One", None, unwanted), Step("Two", None, show)]
    document = Document("name", "Title", "By nobody.", "About.", steps)
    monkeypatch.setattr("sys.argv", ["script.py", "--steps", "2"])
    main(document)
    assert capsys.readouterr().out.splitlines()[3:] == [
        "", "2. Two", "Text.", "", "Mistaken: Weights", "   a", "r  1", "",
        "Right: Weights", "   a", "r  2",
    ]  # fmt: skip
    monkeypatch.setattr("sys.argv", ["script.py", "--steps", "3"])
    with pytest.raises(SystemExit, match="2"):
        main(document)
    assert "--steps" in capsys.readouterr().err
