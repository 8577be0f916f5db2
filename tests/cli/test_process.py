"""The command as a process: signals, errors of libraries, and how fast it answers."""

import subprocess
import sys
import time

import pytest

from jaxformer import cli
from jaxformer.__main__ import main


def test_interrupt_exits_130_without_a_traceback(monkeypatch, capsys, trained):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("jaxformer.runs.open_run", interrupted)
    monkeypatch.setattr(sys, "argv", ["jaxformer", "evaluate", str(trained[0] / "run")])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130 and capsys.readouterr().err == "\n"


def test_help_of_every_command_answers_within_two_seconds_without_jax():
    code = (
        "import sys\n"
        "from jaxformer.cli import main\n"
        "from jaxformer.cli.commands import COMMANDS\n"
        "for words in ('', 'plot', *COMMANDS):\n"
        "    main([*words.split(), '--help'])\n"
        "assert not {'jax', 'numpy', 'flax', 'matplotlib'} & set(sys.modules)\n"
    )
    start = time.monotonic()
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    elapsed = time.monotonic() - start
    assert result.returncode == 0, result.stderr
    for word in ("evaluate", "--beam-size", "[MASK]", "--rows INT", "--step INT", ".svg"):
        assert word in result.stdout
    assert elapsed < 2, f"{elapsed:.1f} s"


def test_error_of_a_library_is_its_last_words_and_status_1(monkeypatch, capsys):
    def fail(*_, **__):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory.\nMore.")

    monkeypatch.setattr("jaxformer.runs.open_run", fail)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["evaluate", "run"])
    expected = "RuntimeError: RESOURCE_EXHAUSTED: Out of memory. More.; --traceback shows where"
    assert stopped.value.code == 1
    assert capsys.readouterr().err == f"jaxformer: error: {expected}\n"
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        cli.main(["evaluate", "run", "--traceback"])
