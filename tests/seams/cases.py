"""The runs whose seams are recorded: tasks, by sources and sizes of their data, and by starts."""

import functools
import gzip
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet

from jaxformer import runs, text
from jaxformer.config import DataConfig, ExperimentConfig, MixtureSourceConfig, SyntheticConfig
from tests.runs import pretrained_folders, tiny
from tests.seams.seams import second_of_two_hosts, small_memory, start

RNG = np.random.default_rng(7)
WORDS = pretrained_folders.WORDS
TEXTS = [" ".join(RNG.choice(WORDS, RNG.integers(3, 12))) for _ in range(60)]
TEXTS += [TEXTS[3], TEXTS[5].upper()]  # one that is repeated, and words that are seen once
ARCHITECTURES = {
    "language model": "decoder", "masked": "encoder", "chat": "decoder",
    "translation": "encoder_decoder", "classification": "encoder",
}  # fmt: skip


def files() -> dict[str, Any]:
    """Texts, a document in each file of one kind and in each line of another."""
    lines = tiny.write_bodies(pathlib.Path("lines.jsonl"), TEXTS[20:])
    for index, sentence in enumerate(TEXTS[:20]):
        tiny.write(pathlib.Path(f"one{index:02}.txt"), [sentence])
    return {"source": "files", "paths": ("one*.txt", lines), "field": "body"}


def documents() -> dict[str, Any]:
    """Texts that see only themselves, and others for validation."""
    held = tiny.write_bodies(pathlib.Path("held.jsonl"), TEXTS[50:60])
    paths = (tiny.write_bodies(pathlib.Path("lines.jsonl"), TEXTS[:50]),)
    return {
        "source": "files", "paths": paths, "field": "body", "validation_paths": (held,),
        "packing": "documents",
    }  # fmt: skip


def packed() -> dict[str, Any]:
    """Texts in a packed file."""
    lines = [json.dumps({"body": sentence}).encode() for sentence in TEXTS]
    pathlib.Path("lines.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines), mtime=0))
    return {"source": "files", "paths": ("lines.jsonl.gz",), "field": "body"}


def columns() -> dict[str, Any]:
    """Texts in a column of two Parquet files, of which one has several row groups."""
    for name, texts in {"a": TEXTS[:20], "b": TEXTS[20:]}.items():
        table = pyarrow.table({"id": range(len(texts)), "body": texts})
        parquet.write_table(table, f"{name}.parquet", row_group_size=20)
    return {"source": "files", "paths": ("*.parquet",), "field": "body"}


def mixture() -> dict[str, Any]:
    """Two sources, of which the first has three quarters of the rows."""
    parts = {"many": (TEXTS[:40], 3.0), "few": (TEXTS[40:], 1.0)}
    sources = []
    for name, (texts, weight) in parts.items():
        paths = (tiny.write_bodies(pathlib.Path(f"{name}.jsonl"), texts),)
        sources.append(MixtureSourceConfig(name=name, paths=paths, weight=weight, field="body"))
    return {"source": "files", "mixture": tuple(sources)}


def tokens() -> dict[str, Any]:
    """Tokens of texts, in three files."""
    tokenizer = text.byte_tokenizer()
    for index in range(3):
        stream = text.build_stream(TEXTS[index::3], tokenizer)
        np.save(pathlib.Path(f"{index}.npy"), stream.tokens.astype(np.uint16))
    return {"source": "tokens", "paths": ("[01].npy",), "validation_paths": ("2.npy",)}


def pairs() -> dict[str, Any]:
    """Pairs in one file."""
    rows = [f"{sentence}\t{' '.join(sentence.split()[::-1])}" for sentence in TEXTS]
    return {"source": "pairs", "paths": (tiny.write(pathlib.Path("rows.tsv"), rows),)}


def aligned() -> dict[str, Any]:
    """Pairs in two files, and others for validation."""
    sides = {"source": TEXTS, "target": [" ".join(sentence.split()[::-1]) for sentence in TEXTS]}
    paths = [tiny.write(pathlib.Path(f"{side}.txt"), texts[:50]) for side, texts in sides.items()]
    held = [
        tiny.write(pathlib.Path(f"{side}.held.txt"), texts[50:]) for side, texts in sides.items()
    ]
    return {"source": "pairs", "paths": tuple(paths), "validation_paths": tuple(held)}


def labelled() -> dict[str, Any]:
    """Texts with their first words as labels."""
    rows = [f"{sentence}\t{sentence.split()[0].lower()}" for sentence in TEXTS]
    return {"source": "labelled", "paths": (tiny.write(pathlib.Path("rows.tsv"), rows),)}


def conversations() -> dict[str, Any]:
    """Questions and answers, some of two turns."""
    lines = []
    for index, sentence in enumerate(TEXTS):
        turn = [
            {"role": "user", "content": sentence},
            {"role": "assistant", "content": sentence.split()[-1]},
        ]
        lines.append(json.dumps({"messages": turn * (1 + index % 2)}))
    path = tiny.write(pathlib.Path("chats.jsonl"), lines)
    return {"source": "conversations", "paths": (path,), "template": "plain"}


def synthetic() -> dict[str, Any]:
    """A task that needs no files."""
    return {"source": "reverse", "synthetic": SyntheticConfig(num_pairs=60, num_validation=8)}


def phrasebook() -> dict[str, Any]:
    """The sentences of the package."""
    return {"source": "phrasebook"}


DATA: dict[str, dict[str, Callable[[], dict[str, Any]]]] = {
    "language model": {
        "files": files, "documents": documents, "packed": packed, "columns": columns,
        "mixture": mixture, "tokens": tokens,
    },
    "masked": {"files": files, "mixture": mixture, "tokens": tokens},
    "translation": {
        "pairs": pairs, "aligned": aligned, "synthetic": synthetic, "phrasebook": phrasebook,
    },
    "classification": {"labelled": labelled, "phrasebook": phrasebook},
    "chat": {"conversations": conversations, "phrasebook": phrasebook},
}  # fmt: skip
FOLDERS = {
    "language model": "gpt2", "masked": "bert", "translation": "t5", "classification": "bert_base",
    "chat": "llama",
}  # fmt: skip


def experiment(task: str, source: str, **changes: Any) -> ExperimentConfig:
    """A run of a task on a source of data, in the current folder, with a tokenizer of bytes."""
    data = DATA[task][source]() | changes.pop("data", {})
    if "paths" in data or "mixture" in data:
        data["cache"] = "cache"
        if "validation_paths" not in data:
            data["validation_fraction"] = 0.2
    if task == "chat":  # also on the phrasebook, which tiny.config takes for pairs
        data["num_buckets"] = DataConfig().num_buckets
        rows = {"batch_size": 8, "batch_tokens": None}
    else:
        rows = {"batch_tokens": 256} if task in ("translation", "classification") else {}
    changes["training"] = rows | changes.get("training", {})
    changes["model"] = {"max_len": 96} | changes.pop("model", {})
    changes.setdefault("tokenizer", {"kind": "byte"})
    architecture = ARCHITECTURES[task]
    return tiny.config(pathlib.Path(), architecture=architecture, data=data, **changes)


def fresh(task: str, source: str, **changes: Any) -> dict[str, Any]:
    """A run that draws its parameters."""
    return start(experiment(task, source, **changes))


def on_disk(task: str, source: str) -> dict[str, Any]:
    """A run whose data does not fit in memory."""
    with small_memory():
        return fresh(task, source)


def on_two_hosts(task: str, source: str) -> dict[str, Any]:
    """A run whose rows are those of the second host."""
    with second_of_two_hosts():
        return fresh(task, source)


def again(task: str, source: str) -> dict[str, Any]:
    """A run that is started for the second time, before its first checkpoint."""
    fresh(task, source)
    return fresh(task, source)


def from_folder(task: str, source: str) -> dict[str, Any]:
    """A run that starts from a folder of Hugging Face, with its tokenizer."""
    _, params = getattr(pretrained_folders, FOLDERS[task])(pathlib.Path("model"))
    return start(experiment(task, source), "--init-from", "model", known=params)


def from_run(task: str, source: str) -> dict[str, Any]:
    """A run that starts from another one."""
    runs.train_run(experiment(task, source, training={"steps": 1}))
    pathlib.Path("run").rename("other")
    known = runs.open_run("other").params
    return start(experiment(task, source), "--init-from", "other", known=known)


def adapted(task: str, source: str) -> dict[str, Any]:
    """A run of low-rank matrices beside the weights of such a folder, started twice."""
    _, params = getattr(pretrained_folders, FOLDERS[task])(pathlib.Path("model"))
    flags = "--init-from", "model", "--lora.rank", "2"
    start(experiment(task, source), *flags)
    return start(experiment(task, source), *flags, known=params)


ON_DISK = {
    "files", "documents", "packed", "columns", "mixture", "pairs", "aligned", "labelled",
    "conversations",
}  # fmt: skip
CASES: dict[str, Callable[[], dict[str, Any]]] = {
    f"{task}, {source}, {how.__name__}": functools.partial(how, task, source)
    for task, sources in DATA.items()
    for source in sources
    for how in (fresh, on_disk, on_two_hosts, again, from_run, from_folder, adapted)
    if how is fresh
    or (how is on_disk and source in ON_DISK)
    or (how is not on_disk and source == next(iter(sources)))
}
