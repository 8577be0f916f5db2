"""jaxformer plot attention on the smallest trained runs, and every user's mistake in one line."""

import json
import re

import pytest

from jaxformer import runs
from tests.cli.commands import one_line, output

START = "<|endoftext|>"


def maps_of(path):
    page = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script id="data"[^>]*>(.*?)</script>', page, re.DOTALL)[1])


def tokens_of(path):
    return {part["name"]: (part["queries"], part["keys"]) for part in maps_of(path)}


@pytest.fixture(scope="module")
def translator(translation_run):
    return translation_run[0]


def test_page_of_a_translator_has_its_own_translation(translator, tmp_path, capsys):
    path = tmp_path / "page.html"
    printed = output(capsys, "plot", "attention", translator, "one two", "--output", path)
    assert printed == (f"{path}\n", "")
    source = ["one", "two", START]
    target = [START, *runs.open_run(translator).translate(["one two"])[0][0].text.split()]
    assert tokens_of(path) == {
        "cross-attention": (target, source),
        "encoder self-attention": (source, source),
        "decoder self-attention": (target, target),
    }
    assert "<title>Attention of run</title>" in path.read_text(encoding="utf-8")


def test_page_of_a_translation_that_is_given(translator, tmp_path, capsys):
    path = tmp_path / "page.html"
    path.write_text("what was there before")
    words = ("one two", "--target", " drei elf", "--output", path, "--step", 50)
    output(capsys, "plot", "attention", translator, *words)
    target = [START, "drei", "<|unknown|>"]
    assert tokens_of(path)["decoder self-attention"] == (target, target)


def test_pages_of_encoders_stand_where_they_are_not_told_otherwise(
    classification_run, masked_run, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for (run, _), text, tokens in [
        (classification_run, " cat dog zebra", ["cat", "dog", "<|unknown|>"]),
        (masked_run, "the [MASK] sat", ["the", "<|mask|>", "sat"]),
        (masked_run, "the cat", ["the", "cat"]),
    ]:
        assert output(capsys, "plot", "attention", run, text).out == "attention.html\n"
        maps = tokens_of(tmp_path / "attention.html")
        assert maps == {"encoder self-attention": (tokens, tokens)}


def test_mistakes_of_plot_attention_get_one_line(translator, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words, message in (
        (["one two", "--step", 7], "no checkpoint of step 7"),
        (["one two", "--target", " "], "a target must have 1 to 11 tokens, got 0; write some"),
        (["one two", "--target", "eins " * 12], "must have 1 to 11 tokens, got 12; shorten it"),
        ([""], "got 0 for ''; write some text"),
        (["one " * 12], "1 to max_len=12 tokens, got 13"),
    ):
        assert message in one_line(capsys, "plot", "attention", translator, *words)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "folder.html").mkdir()
    words = ("one two", "--target", "drei elf", "--output", "folder.html")
    error = one_line(capsys, "plot", "attention", translator, *words, status=1)
    assert "IsADirectoryError: " in error and "folder.html'" in error
    assert "it has no config.toml" in one_line(capsys, "plot", "attention", tmp_path, "a")


def test_target_is_for_translators_alone(classification_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = classification_run[0]
    error = one_line(capsys, "plot", "attention", run, "cat", "--target", "x")
    assert f"the target is the translation of the text, and {run} holds a" in error
    for text, count in (("", 0), ("cat " * 13, 13)):
        error = one_line(capsys, "plot", "attention", run, text)
        assert f"tokens, got {count}" in error
