"""Command lines and files that nobody means: each ends within seconds, with a line or two."""

import contextlib
import itertools
import os
import pathlib
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


def run_all(table, capfd):
    """Runs the commands of a table, and says which one has not ended well."""
    wrong = {}
    for name, words in table.items():
        try:
            assert_ends_well([str(word) for word in words], capfd)
        except (AssertionError, TookTooLong, Exception) as error:
            wrong[name] = f"{type(error).__name__}: {str(error)[:500]}"
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())


@pytest.mark.parametrize("name", hostile.TOML)
def test_configs_end_well(files, capfd, name):
    (files / "config.toml").write_text(
        hostile.TOML[name].replace("{out}", "run").replace("{text}", "text.txt"), "utf-8"
    )
    status, printed = assert_ends_well(["train", "config.toml"], capfd)
    assert status == (1 if name in hostile.RAISED else 2) and hostile.SAID.get(name, "") in printed
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


def words_of():
    return {f"words {place}": words for place, words in enumerate(hostile.WORDS)}


def keys_of_training():
    return hostile.options_of_training(write_config(pathlib.Path()))


def options_of_runs(folder):
    return hostile.options_of_runs(folder / "run")


def options_of_predict(*runs):
    options = ("file", "num-best", "step")
    tables = {run: hostile.of_command(["predict"], [run], options) for run in runs}
    return {
        f"{run} {name}": words for run, table in tables.items() for name, words in table.items()
    }


# What makes a table of command lines, of which runs, and how many there are between those that run.
TABLES = [
    (words_of, (), 8),
    (options_of_runs, ("trained",), len(hostile.VALUES) + 1),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            (words_of, (), 1), (keys_of_training, (), 1), (options_of_runs, ("trained",), 4),
            (hostile.options_of_translators, ("translation_run",), 4),
            (options_of_predict, ("classification_run", "masked_run"), 4),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "runs", "step"), TABLES)
def test_command_lines_end_well(request, capfd, make, runs, step):
    """Together, more than 300."""
    folders = [request.getfixturevalue(name)[0] for name in runs]
    request.getfixturevalue("files")  # after the runs, since it replaces training
    table = dict(itertools.islice(make(*folders).items(), 0, None, step))
    assert len(table) >= 6
    run_all(table, capfd)
