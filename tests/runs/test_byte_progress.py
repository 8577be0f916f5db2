"""Progress over bytes: nothing for a moment, then a bar, or a line now and then."""

import io
import time

import pytest
from rich.console import Console

from jaxformer.runs.data.byte_progress import byte_progress

MIB = 2**20


@pytest.fixture
def clock(monkeypatch):
    """A time that tests set."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def shown(clock, updates, **console):
    """What is shown of (seconds, MiB) updates."""
    file = io.StringIO()
    with byte_progress("tokenizing", 100 * MIB, Console(file=file, width=100, **console)) as update:
        for seconds, done in updates:
            clock[0] = 100 + seconds
            update(done * MIB)
    return file.getvalue()


def test_short_work_shows_nothing(clock):
    for console in ({}, {"force_terminal": True}):
        assert shown(clock, [(0, 10), (1, 50), (1.9, 100)], **console) == ""


def test_lines_come_every_half_minute(clock):
    text = shown(clock, [(0, 20), (10, 25), (29, 30), (30, 35), (40, 37), (59, 49), (60, 50)])
    assert text.splitlines() == ["tokenizing: 35 of 100 MiB", "tokenizing: 50 of 100 MiB"]


def test_terminals_have_a_bar(clock):
    text = shown(clock, [(0, 20), (1, 21), (3, 23)], force_terminal=True)
    assert "tokenizing" in text and "23.0/100.0 MiB" in text
