"""The pages of docs/api/ document every name that the library's rooms export, once."""

import importlib
import pathlib

import pytest

from tests.docs.pages import blocks

ROOMS = [path.parent.name for path in pathlib.Path("jaxformer").glob("*/__init__.py")]
ROOMS = [room for room in ROOMS if room not in ("cli", "stopping", "storage")]  # not for users


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_has_its_topic(room):
    page = pathlib.Path(f"docs/api/{room}.md").read_text(encoding="utf-8")
    lines = "".join(blocks(page, "{reference}")).splitlines()
    names = [line.partition(": ")[0] for line in lines if line and not line.startswith(":")]
    assert sorted(names) == sorted(importlib.import_module(f"jaxformer.{room}").__all__)
