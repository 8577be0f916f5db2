"""The package can be imported where Python has less than on Linux."""

import ast
import pathlib
import subprocess
import sys

import jaxformer

PACKAGE = pathlib.Path(jaxformer.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
# What Python has on Linux and macOS alone.
POSIX_MODULES = {"fcntl", "grp", "pwd", "pty", "resource", "syslog", "termios", "tty"}
POSIX_NAMES = {"O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "fork", "pread", "pwrite",
               "sysconf", "SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1"}  # fmt: skip


def names_on_import(node):
    """Modules and names that a file needs when it is imported: outside its functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield from (alias.name for alias in child.names)
            yield getattr(child, "module", None)
        if isinstance(child, ast.Attribute):
            yield child.attr
        if not isinstance(child, ast.FunctionDef | ast.Lambda):
            yield from names_on_import(child)


def test_no_file_needs_linux_or_macos_to_be_imported():
    posix = POSIX_MODULES | POSIX_NAMES
    for path in FILES:
        source = path.read_text(encoding="utf-8")
        if any(name in source for name in posix):
            assert not posix & set(names_on_import(ast.parse(source))), path


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
