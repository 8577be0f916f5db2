"""The package can be imported where Python has less than on Linux."""

import pathlib
import subprocess
import sys

import jaxformer

PACKAGE = pathlib.Path(jaxformer.__file__).parent
# What Python has on Linux and macOS alone.
POSIX_MODULES = {"fcntl", "grp", "pwd", "pty", "resource", "syslog", "termios", "tty"}


def test_functions_and_models_can_be_imported_on_windows():
    program = f"""
import jax, os, sys
sys.modules.update(dict.fromkeys({sorted(POSIX_MODULES)}))
del os.O_NOFOLLOW, os.O_NONBLOCK
import jaxformer.functional, jaxformer.models, jaxformer.testing
print(jaxformer.config.load_config("quickstart").model.d_model)
from jaxformer.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PACKAGE.parent, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "192\n")
    assert done.stderr.startswith("jaxformer: error: the commands need Linux or macOS")
    assert done.stderr.count("\n") == 1
