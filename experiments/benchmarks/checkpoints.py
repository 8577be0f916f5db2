"""Times what saving a checkpoint every 100 steps costs a training, and what verifying one takes.

Two loops of a few steps take turns, so that a noisy machine is equally noisy to both: one saves
nothing, one as training does. It waits for its save, so that what goes on in the background counts
in full.

Run: python experiments/benchmarks/checkpoints.py --size medium --steps 2 --gigabytes 1
With --bucket gs://my-bucket/times, how long a save in a bucket holds a training up.
"""

import argparse
import pathlib
import shutil
import statistics
import tempfile
import time

import jax
import numpy as np
from timing import interleaved, timed
from train_step import SIZES

from jaxformer.config import AdamWConfig, ModelConfig, ScheduleConfig
from jaxformer.models import Decoder
from jaxformer.storage import as_path
from jaxformer.training import (
    Checkpoints,
    SingleRunner,
    TrainState,
    language_model_loss,
    make_optimizer,
    make_train_step,
)
from jaxformer.training.checkpoints import checkpoint_damage

EVERY = 100  # steps between two saves


def time_saving(size: str, num_steps: int, repeats: int, folder: pathlib.Path) -> None:
    """Prints what a save adds to the steps, with and without a manifest."""
    layers, heads, width, length, batch_size, vocab = SIZES[size]
    model = Decoder(
        ModelConfig(
            vocab_size=vocab, max_len=length, num_layers=layers, d_model=width, num_heads=heads,
            layer_execution="loop",
        )
    )  # fmt: skip
    tokens = np.random.default_rng(0).integers(0, vocab, (batch_size, length + 1), dtype=np.int32)
    batch = {"tokens": tokens[:, :-1], "labels": tokens[:, 1:]}
    optimizer, runner = (
        make_optimizer(AdamWConfig(learning_rate=1e-4), ScheduleConfig(name="constant")),
        SingleRunner(),
    )
    params = model.init_params(jax.random.key(0))
    state = runner.place(TrainState.create(params, optimizer))
    step = runner.compile_train(make_train_step(language_model_loss(model), optimizer, seed=0))

    def loop(saved: Checkpoints | None) -> jax.Array:
        nonlocal state
        for index in range(num_steps):
            state, metrics = step(state, batch)
            if saved is not None and index == 0:
                saved.save(state)
        if saved is not None:
            saved.wait()
        return metrics["loss"]

    with Checkpoints(folder / "saved", keep=1) as saved:
        times = interleaved(
            {"no saving": lambda: loop(None), "saving": lambda: loop(saved)}, repeats
        )
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    print(f"{size}: {count:,} parameters, batch {batch_size} of {length} tokens, "
          f"{num_steps} steps with one save, {repeats} rounds")  # fmt: skip
    seconds = statistics.median(times["no saving"]) / num_steps
    print(f"step: min {min(times['no saving']) / num_steps:.3f} s, median {seconds:.3f} s")
    pairs = zip(times["saving"], times["no saving"], strict=True)
    extra = statistics.median(with_saving - without for with_saving, without in pairs)
    of_minima = min(times["saving"]) - min(times["no saving"])
    print(f"a save adds {of_minima:.3f} s (minima), {extra:.3f} s (median of pairs): "
          f"{extra / (EVERY * seconds):.2%} of {EVERY} steps")  # fmt: skip


def large_state(gigabytes: float, step: int = 1) -> TrainState:
    """A state whose parameters have some gigabytes."""
    rng = np.random.default_rng(0)
    size = int(gigabytes * 2**28 / 8)
    arrays = {str(i): rng.normal(size=size).astype(np.float32) for i in range(8)}
    return TrainState(
        *jax.device_put((np.int32(step), arrays, np.int32(0), np.int32(-1), np.int32(0)))
    )


def time_verifying(size: float, repeats: int, folder: pathlib.Path) -> None:
    """Prints how long a checkpoint of some gigabytes takes to be compared with its manifest."""
    with Checkpoints(folder) as saved:
        saved.save(large_state(size))
        saved.wait()
    stored = sum(p.stat().st_size for p in (folder / "1").rglob("*") if p.is_file()) / 2**30
    times = [timed(lambda: checkpoint_damage(folder / "1")) for _ in range(repeats)]
    print(
        f"verifying {stored:.2f} GiB: min {min(times):.2f} s, "
        f"median {statistics.median(times):.2f} s, {min(times) / stored:.2f} s a GiB"
    )


def time_bucket(gigabytes: float, repeats: int, folder: pathlib.Path) -> None:
    """Prints how long saves hold the calling thread, and how long until they are stored."""
    held, stored = [], []
    with Checkpoints(folder, keep=1) as saved:
        for step in range(1, repeats + 2):
            state = large_state(gigabytes, step)
            began = time.perf_counter()
            saved.save(state)
            saving = time.perf_counter() - began
            saved.wait()
            if step > 1:  # the first removes none
                held.append(saving)
                stored.append(time.perf_counter() - began)
    print(
        f"{gigabytes:g} GiB in {folder}: a save holds the training up for min {min(held):.2f} s, "
        f"median {statistics.median(held):.2f} s, and is stored after {min(stored):.1f} s"
    )
    began = time.perf_counter()
    assert checkpoint_damage(folder / str(repeats + 1)) is None
    print(f"verified in {time.perf_counter() - began:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--steps", type=int, default=4, help="in a loop with one save")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gigabytes", type=float, default=0.1, help="of the verified checkpoint")
    parser.add_argument("--bucket", help="folder in a bucket to save in, in place of all else")
    arguments = parser.parse_args()
    if arguments.bucket is not None:
        return time_bucket(arguments.gigabytes, arguments.repeats, as_path(arguments.bucket))
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        time_saving(arguments.size, arguments.steps, arguments.repeats, folder)
        time_verifying(arguments.gigabytes, arguments.repeats, folder / "large")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
