"""Available memory and CPU cores, and an error before a program needs more memory."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from jaxformer.errors import ConfigError

_CGROUPS = pathlib.Path("/sys/fs/cgroup")
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def host_memory() -> int:
    """Maximum bytes of memory of this process: the least of machine, cgroup and ulimit -v.

    Swap does not count, because arrays in use must be in memory.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_cgroup_limits()]
    try:
        import resource  # missing on Windows

        limits.append(resource.getrlimit(resource.RLIMIT_AS)[0])
    except ImportError:
        pass
    return min(limit for limit in limits if limit > 0)  # RLIM_INFINITY is -1


def _cgroup_limits() -> list[int]:
    """Memory limits of this process's control groups, if any."""
    texts = map(_text, _cgroup_files("memory", "memory.max", "memory.limit_in_bytes"))
    return [int(text) for text in texts if text.isdecimal()]  # not "max"


def usable_cores() -> int:
    """Number of CPU cores that this process may use: the least of affinity and cgroup quota."""
    # macOS and Windows have no affinity of processes.
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    for file in _cgroup_files("cpu", "cpu.max", "cpu.cfs_quota_us"):
        # "200000 100000", quota and period in microseconds; in version 1, one file for each.
        numbers = [*_text(file).split(), *_text(file.with_name("cpu.cfs_period_us")).split()]
        if len(numbers) == 2 and all(map(str.isdecimal, numbers)):  # not "max", nor -1
            cores = min(cores, int(numbers[0]) // int(numbers[1]))
    return max(cores, 1)


def _cgroup_files(controller: str, name: str, old_name: str) -> list[pathlib.Path]:
    """Files, perhaps missing, of a setting of this process's control groups, outer ones included.

    Takes the names of the setting in version 2 and version 1 of control groups.
    """
    files = [_CGROUPS / name, _CGROUPS / controller / old_name]
    for line in _text(pathlib.Path("/proc/self/cgroup")).splitlines():
        # Such as "0::/user.slice", or "4:memory:/user.slice" of version 1.
        _, controllers, path = line.split(":", 2)
        group = pathlib.PurePosixPath(path.lstrip("/"))
        for inner in (group, *group.parents):
            if not controllers:
                files.append(_CGROUPS / inner / name)
            elif controller in controllers.split(","):
                files.append(_CGROUPS / controller / inner / old_name)
    return list(dict.fromkeys(files))


def _text(file: pathlib.Path) -> str:
    """Stripped text of a file of the system; empty if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def device_memory(device: Any) -> int:
    """Bytes of memory of a JAX device; the host's for a CPU or if the device does not report it."""
    limit = (device.memory_stats() or {}).get("bytes_limit") if device.platform != "cpu" else None
    return int(limit) if limit else host_memory()


def require_memory(needs: Mapping[str, int], available: int, *, what: str, remedy: str) -> None:
    """Raises ConfigError if the sum of the needs, lower bounds in bytes, is not available."""
    total = sum(needs.values())
    if total > available:
        parts = ", ".join(f"{name} {readable_bytes(size)}" for name, size in needs.items())
        raise ConfigError(
            f"{what} needs at least {readable_bytes(total)} of memory ({parts}), got "
            f"{readable_bytes(available)}; {remedy}"
        )


def readable_bytes(size: int) -> str:
    """Formats a number of bytes in the largest unit of which it is at least one."""
    unit = min(max(0, size.bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{size / 2 ** (10 * unit):.4g} {_UNITS[unit]}"
