"""Trains configs/nanogpt_cpu.toml beside nanoGPT's own recipe in PyTorch, on the same characters.

Both read the text of Python's documentation: its last tenth is held out, and all of that is
measured at the end. The recipe in PyTorch is that of nanoGPT's README for a CPU: learned positions,
pre-norm, GELU, no biases, tied embeddings, windows at random offsets, AdamW without weight decay of
vectors, a cosine to a tenth of the rate. Where torch is not installed, jaxformer trains alone.

Run: python experiments/benchmarks/nanogpt_cpu.py
"""

import argparse
import dataclasses
import importlib.util
import math
import time

import numpy as np

from jaxformer.config import LoopConfig, load_config
from jaxformer.models import Decoder
from jaxformer.text import Batches, TokenStream, Windows, evaluation_batches, python_documents
from jaxformer.training import (
    TrainingData,
    Trial,
    fit_sweep,
    language_model_loss,
    make_optimizer,
)

Batch = dict[str, np.ndarray]
BATCH_SIZE, STEPS, WARMUP, PEAK = 12, 2000, 100, 1e-3
LAYERS, HEADS, WIDTH, LENGTH = 4, 4, 128, 64


def train_torch(train: np.ndarray, held_out: list[Batch], vocab_size: int, seed: int) -> float:
    """Held-out loss of nanoGPT's recipe."""
    import torch
    from nanogpt_torch import NanoGpt, Sizes, make_adamw

    torch.manual_seed(seed)
    model = NanoGpt(Sizes(LAYERS, HEADS, WIDTH, LENGTH, vocab_size))
    optimizer, ids = make_adamw(model, PEAK, beta2=0.99), torch.from_numpy(train)
    for step in range(STEPS):
        falls = (1 + math.cos(math.pi * max(step - WARMUP, 0) / (STEPS - WARMUP))) / 2
        for group in optimizer.param_groups:
            group["lr"] = PEAK * min((step + 1) / (WARMUP + 1), 0.1 + 0.9 * falls)
        starts = torch.randint(len(ids) - LENGTH, (BATCH_SIZE, 1)) + torch.arange(LENGTH)
        loss = model(ids[starts], ids[starts + 1])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        losses = [
            model(*(torch.from_numpy(batch[name].astype(np.int64)) for name in batch)).item()
            for batch in held_out
        ]
    return float(np.mean(losses))


def train_jaxformer(
    train: np.ndarray, held_out: list[Batch], vocab_size: int, seeds: range
) -> list[float]:
    """Held-out losses of the config, whose seeds train in turn, in one program."""
    config = load_config("nanogpt_cpu")
    model = Decoder(dataclasses.replace(config.model, vocab_size=vocab_size))
    steps = config.training.steps
    windows = Windows(TokenStream(train, np.zeros(1, np.int64)), config.model.max_len)

    def make() -> Trial:
        optimizer = make_optimizer(config.optimizer, config.schedule.ending_at(steps))
        return Trial(language_model_loss(model), model.init_params, optimizer)

    def data(seed: int) -> TrainingData:
        batches = Batches(windows, config.training.batch_size, seed=seed)
        return TrainingData(batches, lambda: held_out)

    loop = LoopConfig(steps=steps, log_every=500, eval_every=steps)
    runs = fit_sweep(make, {"seed": seeds}, data, None, loop)
    return [float(run.result.records[-1]["validation_loss"]) for run in runs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    text = "".join(python_documents())
    characters, ids = np.unique(list(text), return_inverse=True)
    cut = len(ids) * 9 // 10
    windows = Windows(TokenStream(ids[cut:], np.zeros(1, np.int64)), LENGTH)
    full = len(windows) // 100 * 100  # without the remainder
    held_out = list(evaluation_batches([windows[index] for index in range(full)], 100))
    print(f"{cut:,} characters to train on, {full * LENGTH:,} held out, {len(characters)} kinds")
    began = time.perf_counter()
    theirs = []
    if importlib.util.find_spec("torch") is None:
        print("without PyTorch, which is not installed")
    else:
        theirs = [train_torch(ids[:cut], held_out, len(characters), seed) for seed in seeds]
    between = time.perf_counter()
    ours = train_jaxformer(ids[:cut], held_out, len(characters), seeds)
    seconds = between - began, time.perf_counter() - between
    for name, losses, spent in zip(("PyTorch", "jaxformer"), (theirs, ours), seconds, strict=True):
        if not losses:
            continue
        print(
            f"{name}: held-out loss {np.mean(losses):.4f} nats per character, by seed "
            f"{', '.join(f'{loss:.4f}' for loss in losses)}; {spent:.0f} s"
        )


if __name__ == "__main__":
    main()
