import signal
import subprocess
import sys
import time

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
