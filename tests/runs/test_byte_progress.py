"""Progress over bytes: nothing for a moment, then a bar, or a line now and then."""

import io
import time

import pytest
from rich.console import Console

from jaxformer.runs.data.byte_progress import ByteProgress

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
    with ByteProgress("tokenizing", 100 * MIB, Console(file=file, width=100, **console)) as bar:
        for seconds, done in updates:
            clock[0] = 100 + seconds
            bar.update(done * MIB)
    return file.getvalue()


def test_short_work_shows_nothing(clock):
    for console in ({}, {"force_terminal": True}):
        assert shown(clock, [(0, 10), (1, 50), (1.9, 100)], **console) == ""


def test_lines_come_every_half_minute_and_say_how_much_is_left(clock):
    """What was done before does not count for the speed."""
    text = shown(clock, [(0, 20), (10, 25), (29, 30), (30, 35), (40, 37), (59, 49), (60, 50)])
    assert text.splitlines() == [
        "tokenizing: 35 of 100 MiB, 0.5 MiB/s, 130 s left",
        "tokenizing: 50 of 100 MiB, 0.5 MiB/s, 100 s left",
    ]


def test_terminals_have_a_bar(clock):
    text = shown(clock, [(0, 20), (1, 21), (3, 23)], force_terminal=True)
    assert "tokenizing" in text and "23.0/100.0 MiB" in text
