"""Runs the benchmarks of this folder, and writes what they print as one page in Markdown.

Each runs in a process of its own, one after the other: leave the machine alone meanwhile. What is
not installed, such as PyTorch or the compiler of TPUs, is left out by the benchmarks, which say so.

Run: python experiments/benchmarks/report.py --only start_up many_runs --out report.md
"""

import argparse
import datetime
import importlib.metadata
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BENCHMARKS = {  # commands, by the headings of the page
    "Functional core": ["functional_core.py"],
    "Training step": [
        "train_step.py --size small --loop",
        "train_step.py --size small --loop --cpu-devices 2",
        "train_step.py --size medium --loop --repeats 7",
        "train_step.py --size medium --repeats 7",
    ],
    "Training of nanoGPT's CPU setting": ["nanogpt_cpu.py"],
    "Many small runs": ["many_runs.py"],
    "Starting": ["start_up.py"],
    "Compile time by depth": ["compile_time.py"],
    "Decoding": ["generation.py --task greedy", "generation.py --task beams"],
    "Depths of one config": ["depth.py"],
    "Batches": ["batches.py"],
    "Loss of a large vocabulary": ["cross_entropy.py"],
    "Checkpoints": ["checkpoints.py"],
    "Loading weights": ["loading.py"],
    "Preparing text": ["prepare.py --gigabytes 1"],
    "Training on TPUs, as their compiler plans it": ["tpu_training.py --models auto full plain"],
    "Decoding on TPUs, as their compiler plans it": ["tpu_decoding.py"],
    "Generation on TPUs, as their compiler makes it": ["tpu_programs.py"],
    "Experts on TPUs, as their compiler plans them": ["tpu_experts.py"],
}
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "torch", "transformers", "libtpu")


def machine() -> Iterator[str]:
    """Lines on the processor, its cache, the memory and the load."""
    facts = pathlib.Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    yield f"processor: {names[0] if names else platform.processor()}"
    yield f"cores: {os.cpu_count()}"
    cache = pathlib.Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
    if cache.exists():
        yield f"L2 cache of a core: {cache.read_text(encoding='utf-8').strip()}"
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield f"memory: {total / 2**30:.0f} GiB"
    yield f"load when this began: {os.getloadavg()[0]:.1f}"


def versions() -> Iterator[str]:
    """Lines on Python, the packages and the commit."""
    yield f"Python {platform.python_version()}"
    for name in PACKAGES:
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            yield f"{name}: not installed"
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=REPOSITORY, capture_output=True, text=True
    )
    yield f"jaxformer at commit {described.stdout.strip() or 'unknown'}"


def section(heading: str, commands: Sequence[str], failed: list[str]) -> Iterator[str]:
    """Lines of one section; names of commands that fail are added to a list."""
    yield f"## {heading}"
    for command in commands:
        print(command, flush=True)
        script, *options = shlex.split(command)
        path = pathlib.Path("experiments/benchmarks") / script
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, str(path), *options], cwd=REPOSITORY, capture_output=True, text=True
        )
        output = done.stdout.rstrip()
        if done.returncode:
            failed.append(command)
            last = done.stderr.rstrip().splitlines()[-1:]
            output += "\n".join(["", f"failed with status {done.returncode}:", *last])
        spent = time.monotonic() - began
        yield f"\n`python experiments/benchmarks/{command}` ({spent:.0f} s)\n"
        yield f"```text\n{output.strip()}\n```"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("report.md"))
    parser.add_argument("--only", nargs="+", help="scripts, without .py; all by default")
    arguments = parser.parse_args()
    scripts = {command.split(".py")[0] for commands in BENCHMARKS.values() for command in commands}
    if unknown := set(arguments.only or ()) - scripts:
        parser.error(f"--only must be of {', '.join(sorted(scripts))}, got {min(unknown)}")
    lines = ["# Benchmarks", "", f"{datetime.date.today()}", ""]
    lines += [f"- {line}" for line in (*machine(), *versions())]
    failed: list[str] = []
    for heading, commands in BENCHMARKS.items():
        chosen = [c for c in commands if c.split(".py")[0] in (arguments.only or scripts)]
        if chosen:
            lines += ["", *section(heading, chosen, failed)]
            arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(failed)} failed; the page is {arguments.out}")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
