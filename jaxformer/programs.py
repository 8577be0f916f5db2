"""Compiled programs, kept in the user's cache folder for later processes."""

import contextlib
import hashlib
import pathlib
import platform

import jax

from jaxformer.storage import default_cache_dir

# Settings of JAX: its default, and ours. Beyond the size, JAX deletes the least recently used.
_SETTINGS = {
    "jax_compilation_cache_max_size": (-1, 2**31),  # bytes
    "jax_persistent_cache_min_compile_time_secs": (1.0, 0.1),
}


def keep_programs() -> None:
    """Keeps compiled programs in the user's cache folder, unless JAX has a folder or no cache."""
    home = default_cache_dir()
    has_folder = jax.config.jax_compilation_cache_dir is not None
    if home is None or has_folder or not jax.config.jax_enable_compilation_cache:
        return
    folder = home / "programs" / machine()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
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
