"""Trains configs/nanogpt_cpu.toml beside nanoGPT's own recipe in PyTorch, on the same characters.

Both read the text of Python's documentation: its last tenth is held out, and all of that is
measured after the last step. jaxformer trains by its command, a process for each seed, with nothing
compiled before the first: its seconds are from the start of Python, and include validation and
checkpoints every 250 steps, and samples. Those of PyTorch are of its loop alone. Its recipe is
that of nanoGPT's README for a CPU: not compiled, learned positions, pre-norm, GELU, no biases, tied
embeddings, windows at random offsets, AdamW without weight decay of vectors, a cosine to a tenth of
the rate. Where torch is not installed, jaxformer trains alone.

Run: python experiments/benchmarks/nanogpt_cpu.py --seeds 3
"""

import argparse
import importlib.util
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from jaxformer.text import python_documents
from jaxformer.training import read_metrics

BATCH_SIZE, WARMUP, PEAK = 12, 100, 1e-3
LAYERS, HEADS, WIDTH, LENGTH = 4, 4, 128, 64


def train_torch(ids: np.ndarray, cut: int, seed: int, steps: int) -> tuple[float, float]:
    """Held-out loss of nanoGPT's recipe, and seconds of its training."""
    import torch
    from nanogpt_torch import NanoGpt, Sizes, make_adamw

    torch.manual_seed(seed)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    began = time.perf_counter()
    model = NanoGpt(Sizes(LAYERS, HEADS, WIDTH, LENGTH, ids.max() + 1))
    optimizer, train = make_adamw(model, PEAK, beta2=0.99), torch.from_numpy(ids[:cut])
    for step in range(steps):
        falls = (1 + math.cos(math.pi * max(step - WARMUP, 0) / (steps - WARMUP))) / 2
        for group in optimizer.param_groups:
            group["lr"] = PEAK * min((step + 1) / (WARMUP + 1), 0.1 + 0.9 * falls)
        starts = torch.randint(len(train) - LENGTH, (BATCH_SIZE, 1)) + torch.arange(LENGTH)
        loss = model(train[starts], train[starts + 1])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    seconds = time.perf_counter() - began
    held_out = torch.from_numpy(ids[cut:])
    with torch.no_grad():
        losses = [
            model(tokens[None], labels[None]).item() * len(labels)
            for tokens, labels in zip(
                held_out[:-1].split(LENGTH), held_out[1:].split(LENGTH), strict=True
            )
        ]
    return sum(losses) / (len(held_out) - 1), seconds


def train_jaxformer(folder: pathlib.Path, seed: int, steps: int) -> tuple[float, float]:
    """Held-out loss at the last step of `jaxformer train`, and seconds of its process."""
    run = folder / f"run{seed}"
    command = [
        sys.executable, "-m", "jaxformer", "train", "nanogpt_cpu", "--out", str(run),
        "--seed", str(seed), "--training.steps", str(steps),
        "--data.paths", str(folder / "train.txt"),
        "--data.validation-paths", str(folder / "held_out.txt"),
    ]  # fmt: skip
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"jaxformer train failed: {done.stderr.rstrip().splitlines()[-1]}")
    return read_metrics(run)[-1]["validation_loss"], seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    if options.steps <= WARMUP:
        parser.error(f"--steps must be more than the {WARMUP} of the warm-up, got {options.steps}")
    text = "".join(python_documents())
    characters, ids = np.unique(list(text), return_inverse=True)
    cut = len(ids) * 9 // 10
    print(f"{cut:,} characters to train on, {len(ids) - cut:,} held out, {len(characters)} kinds")
    figures: dict[str, list[tuple[float, float]]] = {"PyTorch": [], "jaxformer": []}
    if importlib.util.find_spec("torch") is None:
        print("without PyTorch, which is not installed")
        del figures["PyTorch"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "train.txt").write_text(text[:cut], encoding="utf-8")
        (folder / "held_out.txt").write_text(text[cut:], encoding="utf-8")
        for seed in range(options.seeds):
            if "PyTorch" in figures:
                figures["PyTorch"].append(train_torch(ids, cut, seed, options.steps))
            figures["jaxformer"].append(train_jaxformer(folder, seed, options.steps))
    measured = {"PyTorch": "its loop", "jaxformer": "its process"}
    for name, runs in figures.items():
        losses, seconds = zip(*runs, strict=True)
        print(
            f"{name}: held-out loss {np.mean(losses):.4f} nats per character, by seed "
            f"{', '.join(f'{loss:.4f}' for loss in losses)}; {sum(seconds):.0f} s of "
            f"{measured[name]}, by seed {', '.join(f'{second:.0f}' for second in seconds)}"
        )


if __name__ == "__main__":
    main()
