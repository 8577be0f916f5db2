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
    for row, is_validation in corpus.read():
        texts[is_validation] += row.columns
    return texts[False], texts[True]


def pairs(count):
    """Different sources; some targets occur several times."""
    words = "one two three four five six seven eight nine".split()
    return [(f"{i} {words[i % 9]}", f"{words[i // 3 % 7]} {i // 3}") for i in range(count)]


def scan_pairs(folder, rows, table=text.Pairs, **options):
    (folder / "a.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    options = {"validation_fraction": 0.25} | options
    return text.scan_corpus(table, [folder / "a.tsv"], **options)


def split(table, fraction):
    """Training rows, validation rows, and the counts of all."""
    corpus = text.Corpus.of(table, fraction)
    return corpus.train, corpus.validation, corpus.counts
