"""Command lines and files that nobody means: each ends within seconds, with a line or two."""

import contextlib
import itertools
import os
import shutil
import signal
import sys

import pytest

from jaxformer.cli import main
from jaxformer.errors import ConfigError
from tests.cli import hostile
from tests.cli.commands import write_config

SECONDS = 60  # far more than any takes on a quiet machine
STATUSES = {0, 1, 2, 130, 141, 143}


class TookTooLong(BaseException):
    pass


@contextlib.contextmanager
def limited(seconds):
    def stop(*_):
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def assert_ends_well(words, capfd):
    """Runs a command; returns its status, and what it said on standard error."""
    capfd.readouterr()
    status = 0
    with limited(SECONDS):
        try:
            main(words)
        except SystemExit as stopped:
            status = stopped.code or 0
    printed = capfd.readouterr().err
    assert status in STATUSES
    assert "Traceback" not in printed and "panicked" not in printed
    assert printed.count("\n") <= 5 and len(printed) < 3000, printed[:3000]
    assert bool(printed) == (status != 0) or "jaxformer: " in printed
    return status, printed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of hostile files, some of which take their time to be written."""
    folder = tmp_path_factory.mktemp("hostile")
    hostile.write_files(folder)
    return folder


@pytest.fixture
def files(folder, monkeypatch):
    """The folder, in which commands are run; training ends before its first step."""

    def fit_run(*_, **__):
        raise ConfigError("enough")

    names = set(os.listdir(folder))
    monkeypatch.chdir(folder)
    monkeypatch.setattr("jaxformer.runs.train.fit_run", fit_run)
    with open("/dev/null") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield folder
    for path in folder.iterdir():
        if path.name not in names:  # written by the test
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def every(table, step):
    """Every so many entries of a table."""
    return dict(itertools.islice(table.items(), 0, None, step))


def run_all(table, capfd, least):
    """Runs the commands of a table, and says which one has not ended well."""
    assert len(table) >= least
    wrong = {}
    for name, words in table.items():
        try:
            assert_ends_well([str(word) for word in words], capfd)
        except (AssertionError, TookTooLong, Exception) as error:
            wrong[name] = f"{type(error).__name__}: {str(error)[:500]}"
    print(f"{len(table) - len(wrong)} of {len(table)} end well")
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())


@pytest.mark.parametrize("words", hostile.WORDS[::8], ids=lambda words: repr(words)[:40])
def test_words_end_well(files, capfd, words):
    status, _ = assert_ends_well(words, capfd)
    assert status == 2


@pytest.mark.parametrize("name", hostile.TOML)
def test_configs_end_well(files, capfd, name):
    (files / "config.toml").write_text(
        hostile.TOML[name].replace("{out}", "run").replace("{text}", "text.txt"), "utf-8"
    )
    status, printed = assert_ends_well(["train", "config.toml"], capfd)
    expected = 1 if name.startswith("NUL") else 2  # Python refuses the path, in its own words
    assert status == expected and hostile.SAID.get(name, "") in printed
    trained = printed == "jaxformer: error: enough\n"  # a vocabulary may be larger than the text
    assert (files / "run").exists() == trained


def test_sizes_that_do_not_fit_are_refused_before_they_are_allocated(files, capfd, monkeypatch):
    config = write_config(files)
    monkeypatch.setattr("jaxformer.memory.host_memory", lambda: 2**36)
    for key, value in hostile.SIZES:
        words = ["train", str(config), f"--{key}={value}"]
        status, _ = assert_ends_well(words, capfd)
        assert status == 2, key
        assert not (files / "run").exists(), key


def test_options_of_a_run_end_well(files, capfd, trained):
    """Each option with another value."""
    step = len(hostile.VALUES) + 1
    run_all(every(hostile.options_of_runs(trained[0] / "run"), step), capfd, 18)


# Together, more than 300 command lines.


@pytest.mark.slow
def test_all_words_and_configs_end_well(files, capfd):
    table = {f"words {place}": words for place, words in enumerate(hostile.WORDS)}
    for name, text in hostile.TOML.items():
        path = files / f"{name.replace(' ', '_')}.toml"
        path.write_text(text.replace("{out}", f"run_{path.stem}").replace("{text}", "text.txt"))
        table[f"config: {name}"] = ["train", path.name]
    run_all(table, capfd, 73)


@pytest.mark.slow
def test_every_key_of_a_config_ends_well(files, capfd):
    run_all(hostile.options_of_training(write_config(files)), capfd, 140)


@pytest.mark.slow
def test_every_option_of_a_run_ends_well(files, capfd, trained):
    run_all(every(hostile.options_of_runs(trained[0] / "run"), 4), capfd, 90)


@pytest.mark.slow
def test_every_option_of_a_translator_ends_well(files, capfd, translation_run):
    run_all(every(hostile.options_of_translators(translation_run[0]), 4), capfd, 40)


@pytest.mark.slow
def test_every_option_of_predict_ends_well(files, capfd, classification_run, masked_run):
    table = {}
    for run in (classification_run[0], masked_run[0]):
        table |= every(hostile.of_command(["predict"], [run], ("file", "num-best", "step")), 4)
    run_all(table, capfd, 15)
