import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from jaxformer.stopping import StopRequest

NOTED = "jaxformer: SIGTERM: stopping after this step; once more ends it now\n"


def test_first_signal_is_recorded_and_said(capfd):
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        assert stop.received is None
        signal.raise_signal(signal.SIGTERM)
        assert stop.received == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before and capfd.readouterr().err == NOTED


def test_second_signal_goes_to_the_handlers_that_were_there_before():
    """But not one that comes with the first, as `timeout` sends it to process and group."""
    got = []
    before = signal.signal(signal.SIGTERM, lambda *_: got.append("ours"))
    try:
        with StopRequest() as stop:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert stop.received == signal.SIGTERM and got == []
            time.sleep(0.55)
            signal.raise_signal(signal.SIGTERM)
            assert got == ["ours"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sigint_of_a_shared_training_is_a_sigterm_of_the_job():
    """Whose handler is that of JAX, which tells the other processes."""
    got = []
    before = signal.signal(signal.SIGTERM, lambda *_: got.append("job"))
    try:
        with StopRequest(is_shared=True) as stop:
            signal.raise_signal(signal.SIGTERM)
            assert stop.received is None and got == ["job"]
            signal.raise_signal(signal.SIGINT)
            assert got == ["job", "job"]
    finally:
        signal.signal(signal.SIGTERM, before)


# What a process of the command line does: only the standard library, so that it starts fast.
PROGRAM = """
import hashlib, time
from jaxformer.stopping import StopRequest, end_at_second_signal
end_at_second_signal()
with StopRequest() as stop:
    print("ready", flush=True)
    {work}
    print(stop.received.name)
"""
WORKS = {
    "in C": 'hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)',  # where no handler of Python runs
    "in Python": "while True: pass",
}


@pytest.mark.parametrize("work", WORKS)
def test_second_signal_ends_a_process_at_once_and_shows_the_cursor(work):
    main, other = pty.openpty()
    words = [sys.executable, "-c", PROGRAM.format(work=WORKS[work])]
    with subprocess.Popen(words, stdout=other, stderr=other) as process:
        printed = os.read(main, 100)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert process.wait(timeout=20) == 130 and time.monotonic() - began < 1.5
    os.set_blocking(main, False)
    printed += os.read(main, 10_000)
    os.close(main)
    os.close(other)
    assert printed.endswith(b"\x1b[?25h") and b"Traceback" not in printed


def test_signal_that_is_sent_twice_at_once_is_one():
    words = [sys.executable, "-c", PROGRAM.format(work="time.sleep(1)")]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
        process.stdout.readline()
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        assert process.communicate(timeout=20) == ("SIGTERM\n", NOTED)
        assert process.returncode == 0


def test_interrupt_of_a_command_shows_no_traceback():
    program = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
import jaxformer.cli
jaxformer.cli.main = lambda: signal.raise_signal(signal.SIGINT)
from jaxformer.__main__ import main; main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\n")
