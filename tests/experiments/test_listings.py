"""Code on the pages is the code that runs, without its prose."""

import ast
import inspect

import encoder_steps
import from_scratch_attention
import mistaken
import pytest
import trained_translator
from cures import attend, attend_causally, feed_raw_input
from listings import callees, file_name, listing
from run_all import DOCUMENTS
from scores import compiled_attention_weights, weights_of_scores
from steps import Shown


@pytest.mark.parametrize(
    "function", [mistaken.softmax, attend, weights_of_scores, compiled_attention_weights]
)
def test_listing_is_the_source_with_its_decorators(function):
    plain = inspect.unwrap(function)
    assert listing(function) == inspect.getsource(plain).rstrip()
    assert (listing(function).startswith("@")) == (function is not plain)


def test_listing_of_a_step_has_all_but_its_prose():
    assert (
        listing(from_scratch_attention.show_fair_game)
        == """\
def show_fair_game() -> Shown:
    weights = weights_of_scores(fair_game_scores())
    fair = FAIR_GAME.index("fair")
    return Shown(
        ...,
        {"Weights, query by key": Table(FAIR_GAME, FAIR_GAME, weights)},
        {"fair_game": viz.attention_heatmaps(weights, FAIR_GAME)},
        ...,
    )"""
    )


def test_listing_of_an_inner_function_counts_bytes_before_its_prose():
    def show():
        """“ಕನ್ನಡ”."""
        name, shown = "“ನ”", {}; return Shown(f"“{name}”", figures={}, captions=shown)  # noqa: E702  # fmt: skip

    lines = listing(show).splitlines()
    assert lines[0] == "def show():" and lines[1] == '    """“ಕನ್ನಡ”."""'
    assert "return Shown(..., figures={}, captions=...)" in lines[2]


def test_every_step_is_listed_as_valid_python_without_its_text():
    steps = [step for document in DOCUMENTS[:4] for step in document.steps]
    for step in steps:
        tree = ast.parse(listing(step.show))
        assert tree.body[0].name == step.show.__name__
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        shown = [call for call in calls if ast.unparse(call.func) == "Shown"]
        assert [call.args[0].value for call in shown] == [...]


def test_callees_are_found_through_others_and_once():
    assert callees(attend_causally) == [attend]
    assert callees(feed_raw_input)[1:] == [mistaken.feed_forward_of_the_input]
    functions = callees(encoder_steps.show_position_array)
    assert [function.__name__ for function in functions] == [
        "positions_by_array", "largest_difference", "positions_by_loop", "denominators",
        "_position_table",
    ]  # fmt: skip
    assert [file_name(function) for function in functions[:2]] == ["positions.py", "measures.py"]
    assert callees(trained_translator.document) == []
