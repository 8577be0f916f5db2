"""Times programs by turns, so that a noisy machine is equally noisy to all of them."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

__all__ = ["interleaved", "ratio", "timed"]


def timed(function: Callable[[], Any]) -> float:
    """Seconds of a call, until its arrays are computed."""
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start


def interleaved(programs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Calls each program once per round; returns the seconds of the rounds after the first."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    for index in range(1 + repeats):
        for name, program in programs.items():
            seconds = timed(program)
            if index:
                times[name].append(seconds)
    return times


def ratio(over: list[float], under: list[float]) -> str:
    """How many times as long the first took: by the minima, and the median over the rounds."""
    pairs = [a / b for a, b in zip(over, under, strict=True)]
    return f"min {min(over) / min(under):.2f}, median of pairs {statistics.median(pairs):.2f}"
