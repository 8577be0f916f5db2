"""What type checkers and editors make of the package, in a program of its users."""

import pathlib
import subprocess
import sys

import jaxformer


def test_program_passes_strict_type_checking():
    """By `mypy --strict` with no config, where the package is installed rather than checked."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--follow-imports=silent",
    ]
    # Flax and JAX take 10 seconds to read for the first time, and none from then on.
    command += ["--cache-dir=.mypy_cache/strict", "tests/typed_program.py"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_package_says_that_it_is_typed():
    assert pathlib.Path(jaxformer.__file__).with_name("py.typed").exists()
