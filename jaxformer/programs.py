"""Compiled programs, kept in the user's cache folder for later processes."""

import contextlib
import hashlib
import os
import pathlib
import platform
import time

import jax

from jaxformer.storage import default_cache_dir

# Settings of JAX: its default, and ours. Beyond the size, JAX deletes the least recently used.
_SETTINGS = {
    "jax_compilation_cache_max_size": (-1, 2**31),  # bytes
    "jax_persistent_cache_min_compile_time_secs": (1.0, 0.1),
}
_WRITING = 60.0  # seconds that writing one may take


def keep_programs() -> None:
    """Keeps compiled programs in the user's cache folder, unless JAX has a folder or no cache."""
    if jax.config.jax_compilation_cache_dir is not None:
        return
    if not jax.config.jax_enable_compilation_cache:
        return
    home = default_cache_dir()
    if home is None:
        return
    folder = home / "programs" / machine()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(folder)
    except OSError:
        return
    if not os.access(folder, os.W_OK):  # JAX would warn at every program
        return
    for name, (default, value) in _SETTINGS.items():
        if getattr(jax.config, name) == default:
            jax.config.update(name, value)
    jax.config.update("jax_compilation_cache_dir", str(folder))


def machine() -> str:
    """Name for what a program for the CPU depends on, since machines may share a home folder."""
    features = platform.processor()
    with contextlib.suppress(OSError):
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        features = next((x for x in lines if x.startswith(("flags", "Features"))), features)
    return hashlib.sha256(f"{platform.machine()} {features}".encode()).hexdigest()[:16]


def _remove_unfinished(folder: pathlib.Path) -> None:
    """Removes programs that a killed process left half-written, of which JAX 0.10 would warn."""
    for path in folder.glob("*-cache"):
        # JAX writes the time of access last.
        is_complete = path.with_name(f"{path.name.removesuffix('-cache')}-atime").exists()
        with contextlib.suppress(FileNotFoundError):
            if not is_complete and time.time() - path.stat().st_mtime > _WRITING:
                path.unlink()
