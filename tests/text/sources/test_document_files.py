"""Documents of files: read in pieces, with bad records named or left out."""

import json

import numpy as np
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest

from jaxformer import text
from jaxformer.errors import DataError
from jaxformer.text.sources import document_files
from jaxformer.text.sources.counts import Counts
from jaxformer.text.sources.document_files import read_pieces
from tests.text.corpora.texts import documents, newlines, prose, write_lines
from tests.text.foreign_tokenizers import TEXT, foreign_json


def write_parquet(path, texts, field="text"):
    table = pyarrow.table({field: pyarrow.array(texts, pyarrow.string())})
    pyarrow.parquet.write_table(table, path, row_group_size=7)
    return path


def pieces(file, **options):
    return list(read_pieces(file, Counts("documents"), **options))


def texts_of(rows):
    return [text for row in rows for text in row.columns]


@pytest.mark.parametrize("size", [7, 50, 1000])
def test_pieces_of_a_text_file_are_its_text_and_have_the_tokens_of_the_whole(
    tmp_path, monkeypatch, size
):
    monkeypatch.setattr(document_files, "_PIECE", size)
    whole = "\n \n" + prose(200) + "\n\n"
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + whole.encode())
    read = pieces(tmp_path / "a.txt")
    assert "".join(texts_of(read)) == newlines(whole)
    assert [piece.is_start for piece in read] == [True] + [False] * (len(read) - 1)
    assert len(read) > 2 or size == 1000
    tokenizer = text.train_bpe([newlines(whole)], 320)
    tokens = [tokenizer.encode(piece) for piece in texts_of(read)]
    np.testing.assert_array_equal(np.concatenate(tokens), tokenizer.encode(newlines(whole)))


def test_pieces_of_a_text_get_no_space_between_them(tmp_path, monkeypatch):
    monkeypatch.setattr(document_files, "_PIECE", 60)
    (tmp_path / "a.txt").write_text(TEXT)
    tokenizer = text.Tokenizer.from_json(foreign_json("llama 2"))
    corpus = text.scan_corpus(text.Documents, [tmp_path / "a.txt"], validation_fraction=0)
    train, _ = text.prepare_documents(corpus, tokenizer, None)
    assert train.tokens.tolist() == tokenizer.encode(TEXT).tolist()


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.ndjson.zst", "a.json", "a.parquet"])
def test_records_are_documents(tmp_path, name):
    texts = [*documents(20), " \n", "ends here"]
    write = write_parquet if name.endswith("parquet") else write_lines
    file = write(tmp_path / name, texts, "body")
    read = pieces(file, field="body")
    assert texts_of(read) == [newlines(document) for document in texts if document.strip()]
    assert all(piece.is_start for piece in read)


def test_a_part_without_a_place_to_cut_is_one_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(document_files, "_PIECE", 10)
    (tmp_path / "a.txt").write_text("x" * 95 + " y" * 20)
    assert texts_of(pieces(tmp_path / "a.txt"))[0].startswith("x" * 95)


BAD = {
    "bytes.txt": (
        b"one\ntwo\n\xff three\nfour",
        "bytes.txt:3: .* got 0xFF at byte 0 of the line; unp",
    ),
    "zero.txt": (b"one\ntwo\nthe\0 three\nfour", "zero.txt:3: .* got 0x00 at byte 3"),
    "bytes.jsonl": (
        b'{"text": "a"}\n{"text": "\xe9"}\n{"text": "b"}',
        "bytes.jsonl:2: .* byte 0xe9",
    ),
    "broken.jsonl": (
        b'{"text": "a"}\n{"text": \n{"text": "b"}',
        "broken.jsonl:2: .*, got Expecting",
    ),
    "key.jsonl": (b'{"text": "a"}\n{"body": "x"}\n{"text": "b"}', r"got the keys \['body'\]"),
    "list.jsonl": (b'{"text": "a"}\n["text"]\n{"text": "b"}', r"got \['text'\], no object"),
    "number.jsonl": (b'{"text": "a"}\n{"text": 3}\n{"text": "b"}', "a text under 'text' .*, got 3"),
    "half.jsonl": (b'{"text": "a"}\n{"text": "\\ud800"}\n{"text": "b"}', "half of a surrogate"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_records_are_named_or_left_out_and_counted(tmp_path, name):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        pieces(tmp_path / name)
    assert str(error.value).endswith("or skip unreadable records with data.errors 'skip'")
    counts = Counts("documents", errors="skip")
    texts = texts_of(read_pieces(tmp_path / name, counts))
    assert texts == (["one\ntwo\n\nfour"] if name.endswith("txt") else ["a", "b"])
    line = 3 if name.endswith("txt") else 2
    assert str(counts).endswith(f"1 unreadable (line {tmp_path / name}:{line})")


def test_parquet_errors_name_the_columns_and_the_row(tmp_path):
    file = write_parquet(tmp_path / "a.parquet", ["a", None, "b"])
    with pytest.raises(DataError, match="must have the column 'body' .* got text"):
        pieces(file, field="body")
    with pytest.raises(DataError, match="parquet:2: .* must have a text under 'text' .* got None"):
        pieces(file)
    (tmp_path / "b.parquet").write_bytes(b"text")
    with pytest.raises(DataError, match="b.parquet' cannot be read: .*; get it again"):
        pieces(tmp_path / "b.parquet")


# Datasets that Hugging Face's library has saved.


def write_arrow(path, texts, writer=pyarrow.ipc.new_stream):
    table = pyarrow.table({"n": list(range(len(texts))), "body": texts})
    with pyarrow.OSFile(str(path), "wb") as sink, writer(sink, table.schema) as out:
        out.write_table(table, max_chunksize=2)


def write_dataset(folder, shards, **state):
    folder.mkdir()
    names = [f"data-{i:05}-of-{len(shards):05}.arrow" for i in range(len(shards))]
    for name, texts in zip(names, shards, strict=True):
        write_arrow(folder / name, texts)
    files = [{"filename": name} for name in names]
    (folder / "state.json").write_text(json.dumps({"_data_files": files[::-1], **state}))
    return folder


@pytest.mark.parametrize("writer", [pyarrow.ipc.new_stream, pyarrow.ipc.new_file])
def test_arrow_files_have_a_document_in_each_row(tmp_path, writer):
    write_arrow(tmp_path / "a.arrow", ["one", " ", "two\r\nthree", "four"], writer)
    read = pieces(tmp_path / "a.arrow", field="body")
    assert texts_of(read) == ["one", "two\nthree", "four"]
    with pytest.raises(DataError, match="must have the column 'text' .* got n, body"):
        pieces(tmp_path / "a.arrow")
    (tmp_path / "b.arrow").write_bytes(b"text that is none")
    with pytest.raises(DataError, match="b.arrow' cannot be read: "):
        pieces(tmp_path / "b.arrow")


def test_folder_of_a_dataset_stands_for_its_files_in_their_order(tmp_path):
    folder = write_dataset(tmp_path / "saved", [["a", "b"], ["c"]])
    documents, _ = text.Documents.read([str(folder)], field="body")
    assert documents.texts == ("c", "a", "b")


def test_folders_that_are_no_dataset_are_refused(tmp_path):
    (tmp_path / "plain").mkdir()
    with pytest.raises(DataError, match="a path must be a file .*, got '.*plain': Is a directory"):
        text.Documents.read([str(tmp_path / "plain")])
    selected = write_dataset(tmp_path / "some", [["a"]], _indices_files=[{"filename": "i.arrow"}])
    with pytest.raises(DataError, match="selection of another dataset; .* flatten_indices"):
        text.Documents.read([str(selected)])
