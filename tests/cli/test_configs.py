"""Ready configs: listed, printed, and trained by name; and the version."""

import pathlib

import pytest

import jaxformer
from jaxformer.cli import main
from jaxformer.config import load_config, ready_configs
from jaxformer.errors import ConfigError
from tests.cli.commands import one_line


def test_ready_configs_are_those_of_the_repository():
    assert ready_configs() == {
        path.stem: path.resolve() for path in sorted(pathlib.Path("configs").glob("*.toml"))
    }


def test_configs_are_listed_with_what_they_are_for(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    main(["configs"])
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(lines) == list(ready_configs())
    assert lines["quickstart"] == (
        "A small decoder on the English text that ships inside Python: its own documentation. "
        "Time: 4 to 10 minutes on 2 CPU cores."
    )
    assert all("Time: " in line and line.endswith(".") for line in lines.values())
    for page in ("README.md", "docs/index.md", "docs/train.md"):
        text = " ".join(pathlib.Path(page).read_text(encoding="utf-8").split())
        assert "4 to 10 minutes on two CPU cores" in text, page


@pytest.mark.parametrize("columns", [60, 200])
def test_lists_and_helps_are_as_wide_as_the_terminal(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in ("configs", "predict --help", "translate --help", "prepare -h"):
        main(words.split())
        widths = [len(line.rstrip()) for line in capsys.readouterr().out.splitlines()]
        assert 0.7 * columns < max(widths) <= columns, words


def test_config_is_printed_as_it_stands(capsys):
    main(["configs", "reverse"])
    assert capsys.readouterr().out == pathlib.Path("configs/reverse.toml").read_text("utf-8")


def test_config_of_another_name_gets_one_line(capsys):
    error = one_line(capsys, "configs", "quikstart")
    assert (
        "'quikstart'; the built-in ones are depth, gpt2_124m, " in error
        and "did you mean 'quickstart'?" in error
    )
    error = one_line(capsys, "train", "quikstart")
    assert "no such config file" in error and "did you mean 'quickstart'?" in error


def test_name_stands_for_a_ready_config_unless_there_is_such_a_file(tmp_path, monkeypatch):
    assert load_config("reverse") == load_config("configs/reverse.toml")
    text = pathlib.Path("configs/reverse.toml").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_config("reverse").seed == 0
    (tmp_path / "reverse").write_text(text.replace("seed = 0", "seed = 7"))
    assert load_config("reverse").seed == 7
    with pytest.raises(ConfigError, match=r"reverse.toml: there is no such config file.*'reverse'"):
        load_config("reverse.toml")


def test_version_is_printed(capsys):
    main(["--version"])
    assert capsys.readouterr().out == f"jaxformer {jaxformer.__version__}\n"
