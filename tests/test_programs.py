import os
import subprocess
import sys
import time

import pytest

# Prints the folder, and how often XLA compiled: a program that was kept is not compiled again.
PROGRAM = """
import jax, jax.numpy as jnp
from jaxformer.programs import keep_programs
jax.jit(lambda x: x + 1)(1.0)  # JAX decides at its first program whether there is a cache
keep_programs()
compiled = []
jax.monitoring.register_event_listener(lambda name, **_: compiled.append(name))
jax.jit(lambda x: jnp.linalg.qr(jnp.sin(x) @ x))(jnp.ones((7, 7)))
print(jax.config.jax_compilation_cache_dir)
print(compiled.count("/jax/compilation_cache/cache_hits"))
"""


def run(tmp_path, **environment):
    inherited = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True,
        cwd=tmp_path, env={**inherited, "XDG_CACHE_HOME": str(tmp_path / "home"), **environment},
    )  # fmt: skip
    assert done.stderr == ""
    folder, hits = done.stdout.split()
    return folder, int(hits)


def test_programs_are_kept_in_the_cache_folder_and_read_by_the_next_process(tmp_path):
    folder, hits = run(tmp_path, JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0")
    assert folder.startswith(str(tmp_path / "home" / "jaxformer" / "programs"))
    kept = {name for name in os.listdir(folder) if name.endswith("-cache")}
    assert kept and hits == 0
    # What a killed process has left half-written goes; what one is writing now stays.
    for name, age in (("old-cache", 600), ("new-cache", 0)):
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(b"half")
        os.utime(path, (time.time() - age,) * 2)
    again, hits = run(tmp_path, JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0")
    assert again == folder and hits > 0
    assert {name for name in os.listdir(folder) if name.endswith("-cache")} == {*kept, "new-cache"}


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"JAX_COMPILATION_CACHE_DIR": "own"}, "own"),
        ({"JAX_ENABLE_COMPILATION_CACHE": "false"}, "None"),
        ({"XDG_CACHE_HOME": "/dev/null/x"}, "None"),
    ],
)
def test_no_folder_is_chosen_against_the_users_settings_or_where_none_can_be(
    tmp_path, environment, folder
):
    assert run(tmp_path, **environment) == (folder, 0)
