"""Times `import jaxformer.functional` against importing jax and einops alone, in fresh processes.

Run: python experiments/benchmarks/import_time.py
"""

import argparse
import statistics
import subprocess
import sys

TIMED = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"
IMPORTS = {"jax and einops": "jax, jax.numpy, einops", "jaxformer": "jaxformer.functional"}


def import_seconds(modules: str) -> float:
    code = TIMED.format(modules)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return float(result.stdout)


def compare(repeats: int) -> None:
    """Prints the seconds of both imports, by turns, and their ratio."""
    times: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for _ in range(repeats + 1):  # the first warms the disk's cache
        for name, modules in IMPORTS.items():
            times[name].append(import_seconds(modules))
    for name, values in times.items():
        values = values[1:]
        print(f"{name:>15}: min {min(values):.3f} s, median {statistics.median(values):.3f} s")
    ratios = [ours / theirs for theirs, ours in list(zip(*times.values(), strict=True))[1:]]
    minimum = min(times["jaxformer"][1:]) / min(times["jax and einops"][1:])
    print(f"ratio: of minima {minimum:.2f}, median of pairs {statistics.median(ratios):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    compare(parser.parse_args().repeats)


if __name__ == "__main__":
    main()
