import contextlib
import os
import pty
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from jaxformer import stopping


def test_signal_in_work_that_is_finished_first_is_noted():
    before = signal.getsignal(signal.SIGTERM)
    with stopping.finishing() as signals:
        signal.raise_signal(signal.SIGTERM)
        assert signals.received == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_signal_cuts_short_what_may_be_cut_short():
    reached = []
    with stopping.finishing() as signals:
        with pytest.raises(stopping.Stopped) as raised:
            signals.cut_short(lambda: (signal.raise_signal(signal.SIGINT), reached.append(1)))
        assert raised.value.signal == signal.SIGINT and reached == []
        with pytest.raises(stopping.Stopped):  # the signal has come before
            signals.cut_short(reached.append, 2)
    assert reached == []
    with stopping.finishing() as signals:
        assert signals.cut_short(sum, [1, 2]) == 3


def test_error_that_a_library_makes_of_a_signal_is_the_signal():
    """But one of what is done afterwards, such as saving, is an error."""

    def library():
        try:
            signal.raise_signal(signal.SIGTERM)
        except BaseException:
            raise ValueError("no result") from None

    def failing():
        raise OSError("disk full")

    with stopping.finishing() as signals:
        with pytest.raises(stopping.Stopped):
            signals.cut_short(library)
        with pytest.raises(OSError, match="disk full"):
            failing()
    with stopping.finishing() as signals:
        with pytest.raises(OSError, match="disk full"):
            signals.cut_short(failing)


def test_line_of_a_signal_is_written_once(monkeypatch, capfd):
    """Whoever comes first: the command, the process or its watcher."""
    monkeypatch.setattr(stopping.process, "_process", signals := stopping.StopSignals())
    stopping.say_stopped(signal.SIGTERM, stopping.saved_note(3, "there"))
    signals.say(signal.SIGTERM)
    assert capfd.readouterr().err == (
        "jaxformer: stopped by SIGTERM at step 3, saved in there; repeat the command to resume\n"
    )


def test_signal_is_answered_at_once_while_python_waits_for_c():
    """Also in a program of others, whose SIGTERM is not ended by a watcher."""
    program = """
import hashlib, time
from jaxformer import stopping
with stopping.finishing("stopping soon") as signals:
    print("ready", flush=True)
    began = time.monotonic()
    while time.monotonic() < began + 2:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 3_000_000)  # no handler of Python runs
    print(signals.received.name)
"""
    words, pipe = [sys.executable, "-c", program], subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
        process.stdout.readline()
        time.sleep(0.1)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.stderr.readline() == "jaxformer: SIGTERM: stopping soon\n"
        assert time.monotonic() - began < 0.5
        assert process.communicate() == ("SIGTERM\n", "") and process.returncode == 0


def test_second_signal_goes_to_the_handlers_that_were_there_before():
    """But not one that comes with the first, as `timeout` sends it to process and group."""
    got = []
    before = signal.signal(signal.SIGTERM, lambda *_: got.append("ours"))
    try:
        with stopping.finishing() as signals:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert signals.received == signal.SIGTERM and got == []
            time.sleep(0.25)
            signal.raise_signal(signal.SIGTERM)
            assert got == ["ours"]
    finally:
        signal.signal(signal.SIGTERM, before)


# What a process of the command line does: only the standard library, so that it starts fast.
PROGRAM = """
import hashlib, signal, sys, threading, time
from jaxformer import stopping

def stuck():
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # C, where no handler of Python runs

signals = stopping.install()
signals.note = "at step 3; the same command goes on"
print("ready", flush=True)
print("not flushed")
"""


def in_command(work):
    """Source of a program that does this as the command line does its work."""
    return f"def work():\n{textwrap.indent(work, '    ')}\nsignals.cut_short(work)\n"


def run(program, *sent, terminal=False):
    """Runs a program, sends it signals half a second apart, and returns how it ended."""
    words = [sys.executable, "-c", PROGRAM + program]
    if terminal:
        main, other = pty.openpty()
        streams = {"stdout": other, "stderr": other}
    else:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "TERM": "xterm", "PYTHONUNBUFFERED": ""}  # so that it buffers
    process = subprocess.Popen(words, **streams, env=environment, bufsize=0)
    said = os.read(main, 100) if terminal else process.stdout.readline()
    assert said.startswith(b"ready")
    began = time.monotonic()
    for number in sent:
        time.sleep(0.5)
        began = time.monotonic()
        process.send_signal(number)
    if terminal:
        process.wait(timeout=20)
        elapsed = time.monotonic() - began
        os.close(other)
        with contextlib.suppress(OSError):  # at the end; a read may give less than was written
            while part := os.read(main, 10_000):
                said += part
        os.close(main)
        return process.returncode, elapsed, said.decode(), ""
    out, error = process.communicate(timeout=20)
    return process.returncode, time.monotonic() - began, (said + out).decode(), error.decode()


def test_process_that_does_not_come_out_of_c_is_ended_within_seconds():
    status, seconds, out, error = run(in_command("stuck()"), signal.SIGTERM)
    assert status == 143 and 1.5 < seconds < 5
    assert error == "jaxformer: stopped by SIGTERM at step 3; the same command goes on\n"
    assert out == "ready\nnot flushed\n"


def test_watcher_saves_before_it_ends_a_process_and_nothing_else_goes_on():
    program = """
def save():
    time.sleep(3)
    print("saved")
    signals.note = "at step 4"

def work():
    threading.Timer(0.05, signal.raise_signal, (signal.SIGINT,)).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)  # comes out while the watcher saves

with stopping.finishing() as signals:
    try:
        stopping.signals._GRACE = 0.05
        signals.cut_short(work, save=save)
        print("went on")
    except stopping.Stopped:
        signals.finish_first()
        print("saved by two")
"""
    status, _, out, error = run(program)
    assert status == 130 and out == "ready\nnot flushed\nsaved\n"
    assert error == "jaxformer: stopped by SIGINT at step 4\n"


def test_save_that_fails_is_said():
    program = """
def save():
    raise ValueError("the disk is full")

with stopping.finishing() as signals:
    signals.cut_short(stuck, save=save)
"""
    status, _, _, error = run(program, signal.SIGTERM)
    assert status == 143 and error.endswith(
        "goes on; later steps cannot be saved: the disk is full\n"
    )


@pytest.mark.parametrize("work", ["stuck()", "while True: pass"])
def test_second_signal_ends_a_process_at_once_and_shows_the_cursor(work):
    program = f"with stopping.finishing() as signals:\n    {work}"
    status, seconds, out, _ = run(program, signal.SIGTERM, signal.SIGINT, terminal=True)
    assert status == 130 and seconds < 1.5
    assert out.endswith("\x1b[?25h") and "Traceback" not in out


def test_stop_that_is_swallowed_still_ends_the_process():
    work = """
class Late:
    def __del__(self):
        time.sleep(5)

while True:
    try:
        Late()
    except BaseException:
        pass
"""
    status, seconds, _, error = run(in_command(work), signal.SIGTERM)
    assert status == 143 and seconds < 5
    assert error == "jaxformer: stopped by SIGTERM at step 3; the same command goes on\n"


def test_c_code_that_shows_why_it_cannot_import_shows_nothing_of_a_signal():
    """As NumPy's does for other libraries' extensions, before it makes an ImportError of it."""
    shows = """
    try:
        raise {error}
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
"""
    for error, seen in (("stopping.Stopped(15)", False), ("ValueError(7)", True)):
        *_, said = run(in_command(textwrap.dedent(shows).format(error=error)))
        assert ("Traceback" in said) == seen


def test_signal_in_an_import_ends_the_process_without_an_exception(tmp_path):
    """Which C++ that makes a module would not survive; but the watcher saves what there is."""
    (tmp_path / "loading.py").write_text(
        "import signal\n"
        "try:\n    signal.raise_signal(signal.SIGTERM)\n"
        "except BaseException:\n    print('raised')\n"
    )
    work = f"sys.path.insert(0, {str(tmp_path)!r})\nimport loading\nstuck()"
    status, seconds, out, error = run(in_command(work))
    assert status == 143 and seconds < 1.5 and out == "ready\nnot flushed\n"
    assert error == "jaxformer: stopped by SIGTERM at step 3; the same command goes on\n"
    program = f"""
def work():
{textwrap.indent(work, "    ")}

with stopping.finishing() as signals:
    stopping.signals._GRACE = 0.05
    signals.cut_short(work, save=lambda: print("saved"))
"""
    assert run(program)[::2] == (143, "ready\nnot flushed\nsaved\n")


def run_main(program):
    """Runs a program that changes what the command is, and then the command line."""
    words = [sys.executable, "-c", f"{program}\nfrom jaxformer.__main__ import main; main()"]
    return subprocess.run(words, capture_output=True, text=True, timeout=20)


def test_process_that_a_signal_stops_ends_before_python_takes_modules_apart():
    """C++ whose work was cut short may not survive it; what is registered for the exit runs."""
    done = run_main("""
import atexit, os, signal
import jaxformer.cli

class Unsafe:
    def __del__(self, abort=os.abort):
        abort()

def command():
    atexit.register(print, "cleaned up")
    signal.raise_signal(signal.SIGTERM)

unsafe, jaxformer.cli.main = Unsafe(), command
""")
    assert (done.returncode, done.stdout, done.stderr) == (143, "cleaned up\n", "")


def test_interrupt_before_signals_are_caught_shows_no_traceback():
    done = run_main("""
import signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == "jaxformer.stopping":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
""")
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
