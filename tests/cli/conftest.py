"""The run of a language model that several files of tests look at."""

import pytest

from tests.cli.commands import write_config
from tests.runs import tiny


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A finished run: its folder of everything, and what the command printed."""
    run, printed = tiny.share(
        tmp_path_factory, "language", lambda folder: tiny.print_of_training(write_config(folder))
    )
    return run.parent, printed
