"""Folders of Hugging Face that several files of tests use."""

import pytest

from tests.runs import pretrained_folders


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
