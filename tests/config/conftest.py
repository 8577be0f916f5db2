"""Config files that tests write and load."""

import pytest

from jaxformer.config import load_config


@pytest.fixture
def load(tmp_path):
    """Writes a config file and loads it."""

    def write_and_load(text, name="small.toml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_config(path)

    return write_and_load
