"""Texts to read, split and encode."""

import gzip
import json

import numpy as np
import pyarrow

from jaxformer import text

WORDS = ["one", "two", "drei\u00a0", "naïve", "猫が", "a-b", "x = 1;", "…"]
BREAKS = [" ", " ", " ", "\n", "\n\n", "  \n", "\r\n", " \u2009"]


def prose(count, seed=0):
    rng = np.random.default_rng(seed)
    parts = zip(rng.choice(WORDS, count), rng.choice(BREAKS, count), strict=True)
    return "".join(word + space for word, space in parts)


def documents(count):
    sizes = np.random.default_rng(0).integers(1, 60, count).tolist()
    return [f"{i}: {prose(size, seed=i)}".strip() for i, size in enumerate(sizes)]


def newlines(document):
    return document.replace("\r\n", "\n").replace("\r", "\n")


def zstd(data):
    """A frame of Zstandard."""
    return pyarrow.compress(data, codec="zstd", asbytes=True)


def write_lines(path, texts, field="text"):
    lines = "".join(json.dumps({"id": i, field: content}) + "\n" for i, content in enumerate(texts))
    data = lines.encode()
    packers = {".gz": gzip.compress, ".zst": zstd}
    path.write_bytes(packers.get(path.suffix, bytes)(data))
    return path


def scan(folder, texts, **options):
    file = write_lines(folder / "a.jsonl", texts)
    options = {"validation_fraction": 0.3} | options
    return text.scan_corpus(text.Documents, [file], **options)


def sides(corpus):
    texts = {False: [], True: []}
    (part,) = corpus.parts(2**30)
    for row in part.rows:
        for side_row, is_validation in corpus.holdout.parts(row):
            texts[is_validation] += side_row.columns
    return texts[False], texts[True]
