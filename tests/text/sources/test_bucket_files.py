"""Files in buckets are read as the same files on disk are: streamed, with errors of one line."""

import gzip
import json

import pyarrow
import pytest
from pyarrow import ipc, parquet

from jaxformer import text
from jaxformer.errors import ConfigError, DataError
from jaxformer.storage.paths import bucket_system
from tests.text.corpora.texts import zstd

TEXTS = [f"text {i} of a few words, über {i * i}" for i in range(300)]
LINES = "".join(json.dumps({"text": document}) + "\n" for document in TEXTS).encode()
TABLE = pyarrow.table({"text": TEXTS})


def write_arrow(path, writer):
    with writer(str(path), TABLE.schema) as file:
        file.write_table(TABLE)


WRITE = {
    "a.txt": lambda path: path.write_text("\n".join(TEXTS), encoding="utf-8"),
    "a.txt.gz": lambda path: path.write_bytes(gzip.compress("\n".join(TEXTS).encode())),
    "a.jsonl": lambda path: path.write_bytes(LINES),
    "a.jsonl.gz": lambda path: path.write_bytes(gzip.compress(LINES)),
    "a.jsonl.zst": lambda path: path.write_bytes(zstd(LINES)),
    "a.parquet": lambda path: parquet.write_table(TABLE, path, row_group_size=50),
    "file.arrow": lambda path: write_arrow(path, ipc.new_file),
    "stream.arrow": lambda path: write_arrow(path, ipc.new_stream),
}


def put(path, folder):
    """Copies a file, or those below a folder, into a bucket."""
    for file in [path] if path.is_file() else filter(lambda item: item.is_file(), path.rglob("*")):
        (folder / str(file.relative_to(path.parent))).write_bytes(file.read_bytes())
    return folder / path.name


def said(read, *arguments, **options):
    """The message of the error, which is one line."""
    with pytest.raises((ConfigError, DataError)) as info:
        read(*arguments, **options)
    message = str(info.value)
    assert "\n" not in message and "it starts from" not in message
    return message


@pytest.mark.essential
@pytest.mark.parametrize("name", WRITE)
def test_documents_are_those_of_the_same_file_on_disk(tmp_path, bucket, name):
    WRITE[name](tmp_path / name)
    here, there = tmp_path / name, put(tmp_path / name, bucket)
    (read, _), (expected, _) = (text.Documents.read([str(path)]) for path in (there, here))
    assert read == expected and "".join(read.texts).count("über") == len(TEXTS)
    corpora = [
        text.scan_corpus(text.Documents, [path], validation_fraction=0.2) for path in (there, here)
    ]
    in_bucket, on_disk = corpora
    assert in_bucket.fingerprint == on_disk.fingerprint
    assert in_bucket.train == on_disk.train and in_bucket.validation == on_disk.validation
    assert [*in_bucket.read()] == [*on_disk.read()]


MESSAGES = [{"role": role, "content": "hello"} for role in ("user", "assistant")]


@pytest.mark.parametrize(
    ("table", "files"),
    [
        (text.Pairs, {"a.tsv": "one\teins\ntwo\tzwei\n"}),
        (text.Pairs, {"a.en": "one\ntwo\n", "a.de": "eins\nzwei\n"}),
        (text.Labelled, {"a.tsv": "good\tyes\nbad\tno\nnone\n"}),
        (text.Conversations, {"a.jsonl": json.dumps({"messages": MESSAGES}) + "\n"}),
    ],
)
def test_rows_are_those_of_the_same_files_on_disk(tmp_path, bucket, table, files):
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        put(tmp_path / name, bucket)
    here, there = ([str(folder / name) for name in files] for folder in (tmp_path, bucket))
    assert table.read(there) == table.read(here)
    in_bucket, on_disk = (
        text.scan_corpus(table, paths, validation_fraction=0) for paths in (there, here)
    )
    assert in_bucket.fingerprint == on_disk.fingerprint
    assert [*in_bucket.read()] == [*on_disk.read()]


def test_placeholder_of_a_folder_is_not_a_file(bucket):
    (bucket / "corpus" / "a").write_bytes(b"some text")
    system, key = bucket_system(bucket)
    system.pipe_file(f"{key}/corpus/", b"")
    for pattern in ("corpus/*", "*/*"):
        assert text.text_files([f"{bucket}/{pattern}"]) == [bucket / "corpus" / "a"]


def test_large_file_is_streamed(bucket, emulator):
    line = json.dumps({"text": "some text " * 10_000}).encode() + b"\n"
    (bucket / "a.jsonl").write_bytes(line * 300)  # 30 MB
    corpus = text.scan_corpus(text.Documents, [bucket / "a.jsonl"], validation_fraction=0)
    blocks = []
    emulator.fault = lambda _, path: blocks.append(path) if "alt=media" in path else None
    rows = corpus.read()
    next(rows)
    first = len(blocks)
    assert len([*rows]) == 299 and len(blocks) > first


def test_what_cannot_be_read_is_named(bucket):
    (bucket / "corpus" / "a.txt").write_bytes(b"some text")
    for url, reason in {
        f"{bucket}/none.txt": "there is no such file",
        f"{bucket}/none.parquet": "there is no such file",
        f"{bucket}/none/*.txt": "a pattern must match at least one file",
        f"{bucket}/corpus/a.txt/*": "a pattern must match at least one file",
        "gs://no-such-bucket/a.txt": "there is no such file",
        f"{bucket}/corpus": "Is a directory",
        "s3://bucket/a.txt": "needs s3fs, which is missing",
        "foo://bucket/**/*.txt": "must be like gs://bucket/folder",
    }.items():
        message = said(text.Documents.read, [url])
        assert url in message and reason in message


@pytest.mark.parametrize("name", ["a.bin", "a.npy"])
def test_token_files_are_to_be_copied_first(bucket, name):
    (bucket / name).write_bytes(b"\0\0")
    message = said(text.map_token_files, [bucket / name])
    assert message.endswith(f"copy it first with: gcloud storage cp {bucket}/{name} .")
