"""The run of a language model that several files of tests look at."""

import contextlib
import io

import pytest

from jaxformer.cli import main
from tests.cli.commands import write_config


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A finished run: its folder of everything, and what the command printed."""
    folder = tmp_path_factory.mktemp("cli")
    config, out = write_config(folder), io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["train", str(config)])
    return folder, out.getvalue()
