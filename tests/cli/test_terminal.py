"""What goes to a terminal, and what is done where there is none to write to."""

import errno
import io
import os
import sys
import unicodedata

import pytest

from jaxformer.cli import main, terminal
from jaxformer.runs import LanguageModel
from tests.cli.commands import one_line

HOSTILE = "a\x1b]0;title\x07\x1b[31mred\x1b[0m\rb\x9b2J\x7f\u202eright\u2066to left\tc\n"
SHOWN = "a\\x1b]0;title\\x07\\x1b[31mred\\x1b[0m\\rb\\x9b2J\\x7f\\u202eright\\u2066to left\tc\n"


class Stream(io.StringIO):
    """A stream that says whether it is a terminal, and fails as it is told."""

    def __init__(self, is_terminal=False, error=None):
        super().__init__()
        self.is_terminal, self.error = is_terminal, error

    def isatty(self):
        return self.is_terminal

    def write(self, text):
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        return super().write(text)


def test_every_control_character_but_newline_and_tab_is_written_as_its_code():
    """By the categories of Unicode, not by the list of the code."""
    bidi = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for character in map(chr, range(sys.maxunicode + 1)):
        controls = unicodedata.category(character) == "Cc" and character not in "\n\t"
        controls |= unicodedata.bidirectional(character) in bidi
        if controls:
            assert terminal.for_terminal(character) == ascii(character)[1:-1]
    letters = "caf\xe9 \u0ca8\u200d \u05d0 \U0001f600\n\t"
    assert terminal.for_terminal(letters) == letters


@pytest.mark.parametrize("is_terminal, expected", [(True, SHOWN), (False, HOSTILE)])
def test_generated_text_has_no_control_characters_in_a_terminal_only(
    trained, monkeypatch, is_terminal, expected
):
    """However the text is cut into pieces."""

    def stream(self, prompt, **options):
        return iter(HOSTILE)

    monkeypatch.setattr(LanguageModel, "generate_stream", stream)
    out = Stream(is_terminal)
    monkeypatch.setattr(sys, "stdout", out)
    main(["generate", str(trained[0] / "run"), "\x1bp"])
    prompt = "\\x1bp" if is_terminal else "\x1bp"
    assert out.getvalue() == f"{prompt}{expected}\n"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_errors_have_no_control_characters_in_a_terminal_or_a_log(monkeypatch, is_terminal):
    monkeypatch.setenv("FORCE_COLOR", "1")
    for words, message in (
        (["evaluate", "\x1b[31mrun"], r"\x1b[31mrun is not a run folder"),
        (["train", "\x1b[31mred.toml"], r"error: \x1b[31mred.toml: there is no such"),
        (["trian"], "got 'trian'"),
    ):
        stderr = Stream(is_terminal)
        monkeypatch.setattr(sys, "stderr", stderr)
        with pytest.raises(SystemExit):
            main(words)
        assert message in stderr.getvalue() and "\x1b" not in stderr.getvalue()


def test_long_value_does_not_fill_the_terminal(capsys, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(f"[model]\n{'x' * 100_000} = 1\n")
    assert len(one_line(capsys, "train", config)) < 2200


def test_error_of_a_library_is_its_last_words_and_status_1(monkeypatch, capsys):
    def fail(*_, **__):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory.\nMore.")

    monkeypatch.setattr("jaxformer.runs.open_run", fail)
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", "run"])
    expected = "RuntimeError: RESOURCE_EXHAUSTED: Out of memory. More.; --traceback shows where"
    assert stopped.value.code == 1
    assert capsys.readouterr().err == f"jaxformer: error: {expected}\n"
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        main(["evaluate", "run", "--traceback"])


def test_output_that_cannot_be_written_ends_a_command_with_status_1(trained, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", Stream(error=errno.ENOSPC))
    with pytest.raises(SystemExit) as stopped:
        main(["configs"])
    stderr = capsys.readouterr().err
    assert stopped.value.code == 1 and stderr.count("\n") == 1
    assert "No space left on device" in stderr
