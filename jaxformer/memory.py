"""Available memory, and reuse of memory that is freed."""

import contextlib
import ctypes
import importlib.util
import os
import pathlib
import sys
from typing import Any

_CGROUPS = pathlib.Path("/sys/fs/cgroup")
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
# Numbers of mallopt(3)'s parameters, and values by which all threads share one heap, which has the
# large blocks, too, and never shrinks. By default, glibc returns the temporary arrays of a program
# to the operating system, which maps and clears every page again: 10 to 30 % of a training step.
_M_ARENA_MAX, _M_MMAP_MAX, _M_TRIM_THRESHOLD = -8, -4, -1
_KEEPING = {_M_ARENA_MAX: 1, _M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1}


def host_memory() -> int:
    """Bytes of memory of this machine, or of the container that this process runs in."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of cgroups, versions 2 and 1
        with contextlib.suppress(OSError, ValueError):  # it is missing, or "max"
            sizes.append(int((_CGROUPS / name).read_text(encoding="utf-8")))
    return min(sizes)


def device_memory(device: Any) -> int:
    """Bytes of memory of a JAX device; the host's for a CPU or if the device does not report it."""
    limit = (device.memory_stats() or {}).get("bytes_limit") if device.platform != "cpu" else None
    return int(limit) if limit else host_memory()


def peak_memory(device: Any) -> int | None:
    """Most bytes in use on a JAX device since the process began; None if it does not report it."""
    return (device.memory_stats() or {}).get("peak_bytes_in_use")


def readable_bytes(size: int) -> str:
    """Formats a number of bytes in the largest unit of which it is at least one."""
    unit = min(max(0, size.bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{size / 2 ** (10 * unit):.4g} {_UNITS[unit]}"


def keep_freed_memory() -> None:
    """Makes glibc reuse memory that is freed; call it before JAX or a thread starts."""
    # Without glibc, on accelerators, or with settings of the user's own, all stays as it is.
    is_set = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    if sys.platform != "linux" or is_set or _may_have_accelerators():
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in _KEEPING.items():
            mallopt(parameter, value)


def _may_have_accelerators() -> bool:
    """Whether JAX may use other devices than the CPU, which it knows only once it has started."""
    if platforms := os.environ.get("JAX_PLATFORMS"):
        return platforms != "cpu"
    return any(importlib.util.find_spec(plugin) for plugin in ("jax_plugins", "libtpu"))
