import os
import subprocess
import sys

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
print(jax.config.jax_compilation_cache_max_size)
print(jax.config.jax_persistent_cache_min_compile_time_secs)
"""


def run(tmp_path, **environment):
    inherited = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True,
        cwd=tmp_path, env={**inherited, "XDG_CACHE_HOME": str(tmp_path / "home"), **environment},
    )  # fmt: skip
    assert done.stderr == ""
    folder, hits, size, seconds = done.stdout.split()
    return folder, int(hits), (int(size), float(seconds))


def test_programs_are_kept_in_the_cache_folder_and_read_by_the_next_process(tmp_path):
    folder, hits, settings = run(tmp_path, JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0")
    assert settings == (2**31, 0)
    assert folder.startswith(str(tmp_path / "home" / "jaxformer" / "programs"))
    programs = {name for name in os.listdir(folder) if name.endswith("-cache")}
    assert programs and hits == 0
    again, hits, _ = run(tmp_path, JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0")
    assert again == folder and hits > 0


@pytest.mark.parametrize(
    ("environment", "folder", "settings"),
    [
        ({"JAX_COMPILATION_CACHE_DIR": "own"}, "own", (-1, 1)),
        ({"JAX_ENABLE_COMPILATION_CACHE": "false"}, "None", (-1, 1)),
        ({"XDG_CACHE_HOME": "/dev/null/x"}, "None", (-1, 1)),
        ({"JAX_COMPILATION_CACHE_MAX_SIZE": "7000"}, None, (7000, 0.1)),
    ],
)
def test_settings_of_the_user_win(tmp_path, environment, folder, settings):
    chosen, hits, settings_in_use = run(tmp_path, **environment)
    assert (hits, settings_in_use) == (0, settings)
    assert chosen == folder or (folder is None and "programs" in chosen)
