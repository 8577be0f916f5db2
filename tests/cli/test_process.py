"""The command as a process: signals, and how fast it answers."""

import subprocess
import sys
import time

import pytest

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
        "for words in ('', 'plot', *COMMANDS, 'train quickstart', 'sweep quickstart'):\n"
        "    main([*words.split(), '--help'])\n"
        "assert not {'jax', 'numpy', 'flax', 'matplotlib'} & set(sys.modules)\n"
    )
    start = time.monotonic()
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    elapsed = time.monotonic() - start
    assert result.returncode == 0, result.stderr
    for word in ("evaluate", "--beam-size", "[MASK]", "--length INT", "--step INT", ".svg"):
        assert word in result.stdout
    assert elapsed < 2, f"{elapsed:.1f} s"
