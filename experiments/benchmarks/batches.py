"""Speed of training batches: tokens per second of one process, against what a model trains on.

    python experiments/benchmarks/batches.py # writes 200 million tokens into a folder of its own

The model is one of 124 million parameters, at 6 FLOPs for each of them and each token, on an H100
at half of its peak in bfloat16. The batches are made by turns, and the fastest turn counts.
"""

import argparse
import pathlib
import tempfile
import time

import numpy as np

from jaxformer.text import (
    Batches,
    MaskedBatches,
    Mixture,
    PackedDocuments,
    TokenStream,
    Windows,
)
from jaxformer.text.store.arrays import JoinedArray

VOCABULARY = 50_257
DOCUMENT = 500  # mean length of a document, in tokens
FILES = 16  # that the tokens are in, where they are in several
PEAK, UTILIZATION, PARAMETERS = 989e12, 0.5, 124e6
EATEN = PEAK * UTILIZATION / (6 * PARAMETERS)  # tokens per second


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=200_000_000)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=480)
    parser.add_argument("--steps", type=int, default=20, help="of a turn")
    parser.add_argument("--repeats", type=int, default=5, help="turns")
    options = parser.parse_args()
    print(f"a model of 124 M parameters on an H100 at 50 %: {EATEN:,.0f} tokens/s")
    with tempfile.TemporaryDirectory() as folder:
        streams = write_streams(pathlib.Path(folder), options.tokens)
        shapes = [(options.batch_size, options.length), (16, 128)]
        for rows, length in dict.fromkeys(shapes):
            compare(streams, rows, length, options.steps, options.repeats)


def write_streams(folder, size):
    """Writes random tokens and documents; returns them mapped as one file, and as several."""
    rng = np.random.default_rng(0)
    offsets = np.unique(np.append(0, rng.integers(size, size=size // DOCUMENT)))
    part = -(-size // FILES)
    paths = [folder / f"{index}.npy" for index in range(FILES)]
    whole = np.lib.format.open_memmap(folder / "whole.npy", "w+", np.uint16, (size,))
    for index, path in enumerate(paths):
        tokens = rng.integers(VOCABULARY, size=min(part, size - index * part), dtype=np.uint16)
        whole[index * part : index * part + tokens.size] = tokens
        np.save(path, tokens)
    whole.flush()
    single = np.lib.format.open_memmap(folder / "whole.npy", "r")
    several = JoinedArray([np.lib.format.open_memmap(path, "r") for path in paths])
    return {
        "one file": TokenStream(single, offsets),
        f"{FILES} files": TokenStream(several, offsets),
    }


def compare(streams, rows, length, steps, repeats):
    """Prints the speed of every kind of batch of so many rows."""
    print(f"{rows} rows of {length:,} tokens")
    kinds = {}
    for name, stream in streams.items():
        for cut in (Windows, PackedDocuments):
            kinds[f"{cut.__name__}, {name}"] = Batches(cut(stream, length), rows, seed=0)
    mixture = Mixture(
        {name: PackedDocuments(stream, length) for name, stream in streams.items()},
        dict(zip(streams, (0.7, 0.3), strict=True)),
    )
    kinds["PackedDocuments, mixture of these"] = Batches(mixture, rows, seed=0)
    plain = kinds["Windows, one file"]
    kinds["MaskedBatches of Windows, one file"] = MaskedBatches(
        plain, seed=0, mask_token=VOCABULARY, vocab_size=VOCABULARY + 1
    )
    seconds = {name: [] for name in kinds}
    for turn in range(repeats + 1):  # the first one reads the files into memory
        for name, batches in kinds.items():
            start = time.perf_counter()
            for step in range(steps):
                batches[step]
            if turn:
                seconds[name].append(time.perf_counter() - start)
    for name, times in seconds.items():
        speed = steps * rows * length / min(times)
        print(f"  {name}: {speed / 1e6:.1f} M tokens/s, {speed / EATEN:.1f} times what it eats")


if __name__ == "__main__":
    main()
