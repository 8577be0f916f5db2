"""Folders of runs and of Hugging Face that several files of tests use."""

import pathlib

import pytest

from jaxformer import runs
from tests.runs import pretrained_folders, tiny


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Writes each folder when it is first asked for: its path, config and parameters."""
    written = {}

    def get(name, *arguments):
        key = (name, *arguments)
        if key not in written:
            folder = tmp_path_factory.mktemp(name) / "model"
            written[key] = folder, *getattr(pretrained_folders, name)(folder, *arguments)
        return written[key]

    return get


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The folder of a finished run of a decoder, from which others start."""
    run_config = tiny.config_of_sentences(tmp_path_factory.mktemp("source"))
    runs.train_run(run_config)
    return pathlib.Path(run_config.out)
