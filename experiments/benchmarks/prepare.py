"""Preparing gigabytes of text: speed against the tokenizer alone, memory, and the second start.

    python experiments/benchmarks/prepare.py --gigabytes 5 # in a folder of its own, or --folder F

The text is made of the words of Python's documentation, as often as they are there, in JSON Lines.
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from jaxformer.text import Documents, prepare_documents, python_documents, scan_corpus, train_bpe

VOCABULARY = 32_768
LINES = 6000  # of the text, on which preparing is timed against the tokenizer alone


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--folder", type=pathlib.Path)
    options = parser.parse_args()
    folder = options.folder or pathlib.Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    size = write_text(folder / "text.jsonl", options.gigabytes * 1e9)
    flags = [
        "--data.source", "files", "--data.paths", str(folder / "text.jsonl"), "--data.cache",
        str(folder / "cache"), "--data.validation-fraction", "0.001",
        "--tokenizer.vocab-size", str(VOCABULARY),
    ]  # fmt: skip
    first = timed("prepare", *flags)
    print(f"prepare: {size / 1e9:.2f} GB, {report(first)}; {size / 1e6 / first[0]:.2f} MB/s")
    print(f"prepare again: {report(timed('prepare', *flags))}")
    steps = ["--training.steps", "1", "--training.batch-size", "4", "--model.num-layers", "1"]
    steps += ["--training.eval-every", "1000", "--out", str(folder / "run"), *flags]
    print(f"train for one step: {report(timed('train', *steps))}")
    shares = by_turns(folder)
    shown = ", ".join(f"{share:.0%}" for share in shares)
    print(f"speed against the tokenizer alone, by turns: {shown}")


def write_text(path, size):
    """Writes documents of 100 to 4,000 words; returns the bytes of their text."""
    rng = np.random.default_rng(0)
    words = np.array(" ".join(python_documents()).split(" "))
    parts = [" ".join(rng.choice(words, int(rng.integers(50, 500)))) for _ in range(8192)]
    written = 0
    with path.open("w") as file:
        while written < size:
            chosen = rng.integers(len(parts), size=int(rng.integers(2, 9)))
            text = "\n".join(parts[i] for i in chosen)
            written += len(text.encode())
            file.write(json.dumps({"text": text}) + "\n")
    return written


def timed(command, *flags):
    """Seconds that a command takes, and the most memory that it has, in bytes."""
    words = [sys.executable, "-m", "jaxformer", command, "quickstart", *flags]
    start = time.monotonic()
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return time.monotonic() - start, usage.ru_maxrss * 1024


def report(figures):
    seconds, memory = figures
    return f"{seconds:.1f} s, {memory / 2**20:.0f} MiB of memory at most"


def by_turns(folder):
    """Speed of preparing some megabytes, as a share of that of the `tokenizers` library alone."""
    part = folder / "part.jsonl"
    with (folder / "text.jsonl").open() as file:
        part.write_text("".join(itertools.islice(file, LINES)))
    corpus = scan_corpus(Documents, [part], validation_fraction=0)
    tokenizer = train_bpe(corpus.train.texts, VOCABULARY)
    text = "\n".join(json.loads(line)["text"] for line in part.read_text().splitlines())
    pieces = [text[i : i + 8192] for i in range(0, len(text), 8192)]
    shares = []
    for turn in range(3):
        start = time.monotonic()
        prepare_documents(corpus, tokenizer, folder / f"turn{turn}")
        middle = time.monotonic()
        for i in range(0, len(pieces), 64):
            encodings = tokenizer._tokenizer.encode_batch_fast(pieces[i : i + 64])
            assert all(encoding.ids for encoding in encodings)
        shares.append((time.monotonic() - middle) / (middle - start))
    return shares


if __name__ == "__main__":
    main()
