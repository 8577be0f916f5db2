"""Times starting: importing the functional core, and `jaxformer train` up to its first step.

Imports are compared with those of jax and einops alone. A training starts in an empty cache folder,
and again in the same one, where it finds the programs that the first has compiled. All are fresh
processes, by turns.

Run: python experiments/benchmarks/start_up.py --config quickstart --repeats 5
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

TIMED = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"
# With these, Python would compile our sources in each process, and JAX keep its programs elsewhere.
SWITCHES = ("PYTHONDONTWRITEBYTECODE", "JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")
IMPORTS = {
    "jax and einops": "jax, jax.numpy, einops",
    "jaxformer.functional": "jaxformer.functional",
}


def import_seconds(modules: str) -> float:
    code = TIMED.format(modules)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return float(result.stdout)


def compare_imports(repeats: int) -> None:
    """Prints the seconds of both imports, by turns, and their ratio."""
    times: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for _ in range(repeats + 1):  # the first warms the disk's cache
        for name, modules in IMPORTS.items():
            times[name].append(import_seconds(modules))
    dependencies, package = (values[1:] for values in times.values())
    for name, values in zip(times, (dependencies, package), strict=True):
        print(f"import {name}: min {min(values):.3f} s, median {statistics.median(values):.3f} s")
    ratios = [seconds / other for seconds, other in zip(package, dependencies, strict=True)]
    print(f"ratio: of minima {min(package) / min(dependencies):.2f}, "
          f"median of pairs {statistics.median(ratios):.2f}")  # fmt: skip


def first_step_seconds(config: str, flags: list[str], out: pathlib.Path, cache: str) -> float:
    """Seconds from the start of a process until it shows its first step, where it is stopped."""
    command = [
        sys.executable, "-m", "jaxformer", "train", config, "--out", str(out),
        "--training.log-every", "1", *flags,
    ]  # fmt: skip
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step 1/"):
                seconds = time.perf_counter() - began
                process.kill()
                return seconds
    raise SystemExit(f"{' '.join(command)} ended before its first step")


def compare_starts(config: str, flags: list[str], repeats: int) -> None:
    """Prints the seconds until the first step with an empty cache folder, and with a full one."""
    times: Mapping[str, list[float]] = {"empty cache": [], "same cache": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as name:
            for index, seconds in enumerate(times.values()):
                out = pathlib.Path(name) / f"run{index}"
                seconds.append(first_step_seconds(config, flags, out, name))
    for name, values in times.items():
        print(
            f"first step of {config}, {name}: min {min(values):.1f} s, "
            f"median {statistics.median(values):.1f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="quickstart")
    parser.add_argument("--repeats", type=int, default=5)
    arguments, flags = parser.parse_known_args()  # the others are flags of `jaxformer train`
    for name in SWITCHES:
        os.environ.pop(name, None)
    compare_imports(arguments.repeats)
    compare_starts(arguments.config, flags, arguments.repeats)


if __name__ == "__main__":
    main()
