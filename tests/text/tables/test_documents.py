"""Documents of files: found, read in pieces, with bad records named, and split."""

import json

import numpy as np
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer import text
from jaxformer.errors import DataError
from jaxformer.text.sources import files
from jaxformer.text.tables import documents as document_tables
from jaxformer.text.tables.documents import without_repeats
from tests.text.corpora.texts import documents, newlines, prose, split, write_lines
from tests.text.foreign_tokenizers import TEXT, foreign_json


def write_parquet(path, texts, field="text"):
    table = pyarrow.table({field: pyarrow.array(texts, pyarrow.string())})
    pyarrow.parquet.write_table(table, path, row_group_size=7)
    return path


def pieces(file, **options):
    return list(text.Documents.rows([str(file)], **options))


def texts_of(rows):
    return [text for row in rows for text in row.columns]


@pytest.mark.parametrize("size", [7, 50, 1000])
def test_pieces_of_a_text_file_are_its_text_and_have_the_tokens_of_the_whole(
    tmp_path, monkeypatch, size
):
    monkeypatch.setattr(document_tables, "_PIECE", size)
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
    monkeypatch.setattr(document_tables, "_PIECE", 60)
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
    monkeypatch.setattr(document_tables, "_PIECE", 10)
    (tmp_path / "a.txt").write_text("x" * 95 + " y" * 20)
    assert texts_of(pieces(tmp_path / "a.txt"))[0].startswith("x" * 95)


BAD = {
    "bytes.jsonl": (
        b'{"text": "a"}\n{"text": "\xe9"}\n{"text": "b"}',
        "must be JSON in UTF-8, got .* byte 0xe9",
    ),
    "broken.jsonl": (
        b'{"text": "a"}\n{"text": \n{"text": "b"}',
        "broken.jsonl:2: .*, got Expecting",
    ),
    "key.jsonl": (b'{"text": "a"}\n{"body": "x"}\n{"text": "b"}', r"got the keys \['body'\]"),
    "list.jsonl": (
        b'{"text": "a"}\n["text"]\n{"text": "b"}',
        r"be a JSON object, got \['text'\]",
    ),
    "number.jsonl": (b'{"text": "a"}\n{"text": 3}\n{"text": "b"}', "a text under 'text' .*, got 3"),
    "half.jsonl": (b'{"text": "a"}\n{"text": "\\ud800"}\n{"text": "b"}', "half of a surrogate"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_records_are_named(tmp_path, name):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        pieces(tmp_path / name)
    assert str(error.value).startswith(f"{tmp_path / name}:2: ") and "\n" not in str(error.value)


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


LONG = "This paragraph is longer than forty characters."
LINES = [f"line {i} of {name}\n" for name in "abcde" for i in range(7)]


def read_documents(paths):
    return list(text.Documents.read(paths)[0].texts)


def split_documents(documents, fraction):
    train, validation, _ = split(text.Documents.of(documents), fraction)
    return list(train.texts), list(validation.texts)


def test_files_are_read_in_order_and_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner" / "folder.txt").mkdir(parents=True)
    for name in ("c.txt", "b.md", "a.txt", "inner/d.txt", "[x].txt"):
        (tmp_path / name).write_text(f"text of {name}")
    unsorted = files.glob.glob
    monkeypatch.setattr(
        files.glob, "glob", lambda *args, **kwargs: sorted(unsorted(*args, **kwargs))[::-1]
    )
    texts = read_documents(["c.txt", "*.txt", f"{tmp_path}/c.txt", "[x].txt", "**/*"])
    names = ["c.txt", "[x].txt", "a.txt", "b.md", "inner/d.txt"]
    assert texts == [f"text of {name}" for name in names]


@pytest.mark.parametrize(
    "paths, rule",
    [
        ([], r"list of text files or patterns, got \[\]; name one"),
        ("good.txt", "list of text files or patterns, got 'good.txt'"),
        (["good.txt", "*.rst"], r"got '\*\.rst', which matches none in /.*; check its spelling"),
        (["fold*"], r"got 'fold\*', which matches none"),
        (["folder"], "must be a file .*, got 'folder': Is a directory"),
        (["empty.txt", "mark.txt"], "must be usable, got 'empty.txt' and 'mark.txt': 0 documents"),
    ],
)
def test_reading_names_what_is_wrong(tmp_path, monkeypatch, paths, rule):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, content in {"good": b"a", "empty": b"", "mark": b"\xef\xbb\xbf\n"}.items():
        (tmp_path / f"{name}.txt").write_bytes(content)
    with pytest.raises(DataError, match=rule) as error:
        read_documents(paths)
    assert "\n" not in str(error.value)


def test_single_document_is_split_into_head_and_tail_at_the_nearest_line():
    text = "".join(LINES)
    (training,), (validation,) = split_documents([text], 0.2)
    assert training + validation == text
    assert training.endswith("\n")
    assert abs(len(validation) - 0.2 * len(text)) <= len(LINES[0]) / 2


def test_single_line_is_split_at_a_space_or_between_characters():
    assert split_documents(["abcd ef ghij"], 0.4) == (["abcd ef"], [" ghij"])
    assert split_documents(["abcdefghij\n"], 0.3) == (["abcdefgh"], ["ij\n"])


lines = st.lists(st.sampled_from(["a\n", "bb\n", "ccccc\n"]), min_size=1, max_size=7)


@settings(deadline=None, max_examples=100)
@given(
    documents=st.lists(lines.map("".join), min_size=1, max_size=7, unique=True),
    fraction=st.floats(0.01, 0.99),
)
def test_split_keeps_every_character_and_cuts_at_most_one(documents, fraction):
    try:
        training, validation = split_documents(documents, fraction)
    except DataError as error:  # too little text for the fraction
        assert "both sides of a split must have documents" in str(error)
        return
    assert all(training) and all(validation)
    assert len(training) + len(validation) <= len(documents) + 1
    assert sorted("".join(training + validation)) == sorted("".join(documents))


def test_paragraphs_that_documents_repeat_are_kept_once():
    documents = [
        f"head {i}\n\n  {LONG}\n \n\nshort\n\n{LONG} Number {i}, and longer." for i in range(5)
    ]
    first, *later = without_repeats(documents)
    assert first == documents[0]
    for i, document in enumerate(later, 1):
        assert document == f"head {i}\n\nshort\n\n{LONG} Number {i}, and longer."
    assert without_repeats([LONG, LONG, "more"]) == [LONG, "more"]


@pytest.mark.parametrize(
    "documents, fraction, side",
    [
        (["a"], 0.4, "validation side with validation_fraction=0.4 from 1 documents, 1 bytes"),
        ([LONG, LONG], 0.4, "validation side with .* from 2 documents, 94 bytes"),
        (["abc"], 1.0, "training side with validation_fraction=1.0"),
        (["abc"], -0.1, "validation side with validation_fraction=-0.1"),
        (["abc"], float("nan"), "validation side with validation_fraction=nan"),
    ],
)
def test_split_refuses_an_empty_side(documents, fraction, side):
    with pytest.raises(DataError, match=f"both sides .* got an empty {side}.*; add data"):
        split_documents(documents, fraction)
