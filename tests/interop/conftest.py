"""Tests that compare with transformers are skipped where it is not installed."""

import importlib.util

import pytest

_NEEDED = ("torch", "transformers", "sentencepiece")


def pytest_collection_modifyitems(items):
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return
    skip = pytest.mark.skip(reason=f"needs {', '.join(missing)}; pip install -e .[parity]")
    for item in items:
        if item.get_closest_marker("parity") is not None:
            item.add_marker(skip)
