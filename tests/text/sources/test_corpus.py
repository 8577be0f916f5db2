"""Text larger than memory: read in pieces, split, and prepared as token files."""

import gzip
import json
import os

import numpy as np
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
import zstandard

from jaxformer import text
from jaxformer.errors import DataError
from jaxformer.text.sources import corpus as corpora
from jaxformer.text.sources import document_files, files, prepared_corpus, record_files
from jaxformer.text.sources.document_files import read_pieces
from jaxformer.text.sources.holdout import text_draws
from jaxformer.text.sources.record_files import BadRecords
from tests.text.foreign_tokenizers import TEXT, foreign_json

RNG = np.random.default_rng(0)
WORDS = ["one", "two", "drei\u00a0", "naïve", "猫が", "a-b", "x = 1;", "…"]
BREAKS = [" ", " ", " ", "\n", "\n\n", "  \n", "\r\n", " \u2009"]


def prose(count):
    parts = zip(RNG.choice(WORDS, count), RNG.choice(BREAKS, count), strict=True)
    return "".join(word + space for word, space in parts)


def documents(count):
    return [f"{i}: {prose(int(RNG.integers(1, 60)))}".strip() for i in range(count)]


def newlines(document):
    return document.replace("\r\n", "\n").replace("\r", "\n")


def write_lines(path, texts, field="text"):
    lines = "".join(json.dumps({"id": i, field: one}) + "\n" for i, one in enumerate(texts))
    data = lines.encode()
    packers = {".gz": gzip.compress, ".zst": zstandard.compress}
    path.write_bytes(packers.get(path.suffix, bytes)(data))
    return path


def write_parquet(path, texts, field="text"):
    table = pyarrow.table({field: pyarrow.array(texts, pyarrow.string())})
    pyarrow.parquet.write_table(table, path, row_group_size=7)
    return path


def pieces(file, **options):
    return list(read_pieces(file, BadRecords(), **options))


# Reading.


@pytest.mark.parametrize("size", [7, 50, 1000])
def test_pieces_of_a_text_file_are_its_text_and_have_the_tokens_of_the_whole(
    tmp_path, monkeypatch, size
):
    monkeypatch.setattr(document_files, "_PIECE", size)
    whole = "\n \n" + prose(200) + "\n\n"
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + whole.encode())
    found = pieces(tmp_path / "a.txt")
    assert "".join(piece.text for piece in found) == newlines(whole)
    assert [piece.is_start for piece in found] == [True] + [False] * (len(found) - 1)
    assert len(found) > 2 or size == 1000
    tokenizer = text.train_bpe([newlines(whole)], 320)
    tokens = [tokenizer.encode(piece.text) for piece in found]
    np.testing.assert_array_equal(np.concatenate(tokens), tokenizer.encode(newlines(whole)))
    for index, piece in enumerate(found[:-1]):  # any piece can be gone on behind
        assert pieces(tmp_path / "a.txt", start=piece.end) == [
            later._replace(is_start=False) for later in found[index + 1 :]
        ]


def test_pieces_of_a_text_get_no_space_between_them(tmp_path, monkeypatch):
    monkeypatch.setattr(document_files, "_PIECE", 60)
    (tmp_path / "a.txt").write_text(TEXT)
    tokenizer = text.Tokenizer.from_json(foreign_json("llama 2"))
    corpus = text.scan_corpus([tmp_path / "a.txt"], validation_fraction=0)
    prepared = text.prepare_corpus(corpus, tokenizer, None)
    assert prepared.train.tokens.tolist() == tokenizer.encode(TEXT).tolist()


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.ndjson.zst", "a.json", "a.parquet"])
def test_records_are_documents(tmp_path, name):
    texts = [*documents(20), " \n", "ends here"]
    write = write_parquet if name.endswith("parquet") else write_lines
    file = write(tmp_path / name, texts, "body")
    found = pieces(file, field="body")
    assert [piece.text for piece in found] == [newlines(one) for one in texts if one.strip()]
    assert all(piece.is_start for piece in found)
    assert pieces(file, field="body", start=found[3].end) == found[4:]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst", "a.jsonl", "a.jsonl.gz"])
def test_a_file_is_scanned_in_one_reading(tmp_path, monkeypatch, name):
    file = write_lines(tmp_path / name, documents(60))
    if name == "a.txt.gz":
        file.write_bytes(file.read_bytes() + b"\0" * 5000)  # padding, which gzip leaves out
    readers, plain = [], files.open_regular

    def counted(path):
        readers.append(path)
        return plain(path)

    monkeypatch.setattr(files, "open_regular", counted)
    text.scan_corpus([file], validation_fraction=0.3)
    assert readers == [file]


def test_a_part_without_a_place_to_cut_is_one_piece_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(document_files, "_PIECE", 10)
    monkeypatch.setattr(document_files, "MAX_RECORD", 100)
    monkeypatch.setattr(record_files, "MAX_RECORD", 100)
    (tmp_path / "a.txt").write_text("x" * 95 + " y" * 20)
    assert pieces(tmp_path / "a.txt")[0].text == "x" * 95 + " y" * 2
    (tmp_path / "a.txt").write_text("short " + "x" * 200)
    with pytest.raises(DataError, match="in any 100 bytes, got none in .* from byte 5 on"):
        pieces(tmp_path / "a.txt")
    write_lines(tmp_path / "a.jsonl", ["x", "y" * 100])
    with pytest.raises(DataError, match="at most 100 bytes, got more in .* line 2, from byte 23"):
        pieces(tmp_path / "a.jsonl")


BAD = {
    "bytes.txt": (
        b"one\ntwo\n\xff three\nfour",
        "0xFF in .*bytes.txt', line 3, byte 8; convert",
    ),
    "zero.txt": (b"one\ntwo\n\0 three\nfour", "0x00 in .*zero.txt', line 3, byte 8; remove"),
    "bytes.jsonl": (
        b'{"text": "a"}\n{"text": "\xe9"}\n{"text": "b"}',
        "0xE9 in .*line 2, byte 24",
    ),
    "broken.jsonl": (b'{"text": "a"}\n{"text": \n{"text": "b"}', "line 2, must be JSON: Expecting"),
    "key.jsonl": (b'{"text": "a"}\n{"body": "x"}\n{"text": "b"}', r"has the keys \['body'\]"),
    "list.jsonl": (b'{"text": "a"}\n["text"]\n{"text": "b"}', "has list; .* an array with: jq"),
    "array.json": (b'{"text": "a"}\n[{"text":\n{"text": "b"}', "be JSON.*an array with: jq"),
    "number.jsonl": (b'{"text": "a"}\n{"text": 3}\n{"text": "b"}', "got 3"),
    "half.jsonl": (b'{"text": "a"}\n{"text": "\\ud800"}\n{"text": "b"}', "half of a surrogate"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_records_are_named_or_left_out_and_counted(tmp_path, name):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        pieces(tmp_path / name)
    assert str(error.value).endswith("or skip unreadable records with data.errors 'skip'")
    bad = BadRecords("skip")
    found = [piece.text for piece in read_pieces(tmp_path / name, bad)]
    assert found == (["one\ntwo\n\nfour"] if name.endswith("txt") else ["a", "b"])
    assert bad.count == 1 and len(bad.shown) == 1


def test_parquet_errors_name_the_columns_and_the_row(tmp_path):
    file = write_parquet(tmp_path / "a.parquet", ["a", None, "b"])
    with pytest.raises(DataError, match="must have the column 'body' .* got text"):
        pieces(file, field="body")
    with pytest.raises(DataError, match="row 2, must have a text under 'text' .* got None"):
        pieces(file)
    (tmp_path / "b.parquet").write_bytes(b"text")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        pieces(tmp_path / "b.parquet")


# Splitting.


def scan(folder, texts, **options):
    file = write_lines(folder / "a.jsonl", texts)
    options = {"validation_fraction": 0.3} | options
    return text.scan_corpus([file], **options)


def sides(corpus):
    found = {False: [], True: []}
    for piece, _ in corpus.pieces(corpora.Place()):
        side, _ = text_draws(piece.text.encode())
        for part, is_validation in corpus.holdout.parts(piece.text, side):
            found[is_validation].append(part)
    return found[False], found[True]


def test_documents_are_on_a_side_by_what_they_say(tmp_path):
    texts = documents(400)
    train, validation = sides(scan(tmp_path, texts))
    sizes = [sum(len(one.encode()) for one in side) for side in (train, validation)]
    assert sizes[1] / sum(sizes) == pytest.approx(0.3, abs=0.002)
    whole = set(map(newlines, texts))
    assert len(train) + len(validation) == 401 and len({*train, *validation} - whole) == 2
    # In another order, each is where it was.
    again, more = sides(scan(tmp_path, texts[::-1]))
    assert (set(again), set(more)) == (set(train), set(validation))


def test_more_documents_leave_the_others_where_they_were(tmp_path):
    texts = documents(200)
    _, validation = sides(scan(tmp_path, texts))
    _, more = sides(scan(tmp_path, [*texts, *documents(2)]))
    assert len(set(validation) - set(more)) <= 4  # the one that is cut, and its neighbours


def test_small_text_is_its_own_sample(tmp_path, monkeypatch):
    texts = documents(50)
    corpus = scan(tmp_path, texts, characters=True)
    assert not corpus.is_sampled
    assert (list(corpus.sample), list(corpus.validation_sample)) == sides(corpus)
    size = sum(len(newlines(one).encode()) for one in texts)
    assert (corpus.num_documents, corpus.num_bytes) == (50, size)
    monkeypatch.setattr(corpora, "_SAMPLE", size - 1)
    assert scan(tmp_path, texts).is_sampled


def test_split_is_the_same_in_memory_and_in_files(tmp_path):
    texts = list(map(newlines, documents(60)))
    in_memory = text.Corpus.of([*texts, " \n"], 0.3)
    assert sides(in_memory) == sides(scan(tmp_path, texts))
    assert (list(in_memory.sample), list(in_memory.validation_sample)) == sides(in_memory)
    (tmp_path / "a.txt").write_text(texts[0])
    corpus = text.scan_corpus([tmp_path / "a.txt"], validation_fraction=0.3)
    assert sides(text.Corpus.of(texts[:1], 0.3)) == sides(corpus)


@pytest.mark.parametrize("shard_size", [500, 10**6])
def test_tokens_are_the_same_in_memory_and_in_files(tmp_path, shard_size):
    texts = list(map(newlines, documents(60)))
    options = {"shard_size": shard_size}
    expected = text.prepare_corpus(scan(tmp_path, texts), TOKENIZER, tmp_path / "a", **options)
    corpus = text.Corpus.of(texts, 0.3)
    for cache in (tmp_path / "b", tmp_path / "b", None):
        found = text.prepare_corpus(corpus, TOKENIZER, cache, **options)
        for stream, other in zip(found, expected, strict=True):
            assert stream.num_bytes == other.num_bytes
            np.testing.assert_array_equal(np.asarray(stream.tokens), np.asarray(other.tokens))
            np.testing.assert_array_equal(stream.offsets, other.offsets)
    assert text.Corpus.of(texts[::-1], 0.3).fingerprint != corpus.fingerprint


def test_documents_that_cannot_be_encoded_are_refused():
    with pytest.raises(DataError, match="must be valid Unicode"):
        text.prepare_corpus(text.Corpus.of(["a\ud800"]), TOKENIZER, None)
    with pytest.raises(DataError, match="documents must be a list of texts, got 'a text'"):
        text.Corpus.of("a text")


def test_sample_is_drawn_evenly_from_the_training_text(tmp_path, monkeypatch):
    monkeypatch.setattr(corpora, "_SAMPLE", 2000)
    texts = documents(400)
    corpus = scan(tmp_path, texts)
    train, validation = sides(corpus)
    assert corpus.is_sampled and 900 < sum(len(one.encode()) for one in corpus.sample) <= 2000
    assert set(corpus.sample) < set(train) and set(corpus.validation_sample) == set(validation)
    places = [train.index(one) for one in corpus.sample]
    assert min(places) < len(train) / 4 and max(places) > len(train) * 3 / 4
    with_all = scan(tmp_path, texts, characters=True)
    assert set("".join(with_all.sample)) == set("".join(map(newlines, texts)))


def test_fingerprint_is_of_the_content_and_of_how_it_is_read(tmp_path):
    first = scan(tmp_path, ["one", "two"])
    os.utime(tmp_path / "a.jsonl", (1, 1))
    assert scan(tmp_path, ["one", "two"]).fingerprint == first.fingerprint
    assert scan(tmp_path, ["one", "Two"]).fingerprint != first.fingerprint
    other = scan(tmp_path, ["one", "two"], validation_fraction=0.2)
    assert other.fingerprint != first.fingerprint


def test_a_file_that_changes_is_an_error(tmp_path, monkeypatch):
    corpus = scan(tmp_path, documents(5))
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"text": "more"}\n')
    with pytest.raises(DataError, match="a.jsonl' has changed while it was read"):
        list(corpus.pieces(corpora.Place()))
    reads = read_pieces

    def growing(*arguments, **options):
        yield from reads(*arguments, **options)
        with (tmp_path / "a.jsonl").open("a") as file:
            file.write(" ")

    monkeypatch.setattr(corpora, "read_pieces", growing)
    with pytest.raises(DataError, match="has changed while it was read"):
        scan(tmp_path, documents(5))


def test_files_that_were_looked_through_are_remembered(tmp_path, monkeypatch):
    file = write_lines(tmp_path / "a.jsonl", documents(9))
    options = {"cache_dir": tmp_path / "cache", "validation_fraction": 0.3}
    first = text.scan_corpus([file], **options)
    with monkeypatch.context() as patch:
        patch.setattr(corpora, "read_pieces", None)
        again = text.scan_corpus([file], **options)
    assert vars(again) == vars(first)
    for record in (tmp_path / "cache/corpora").iterdir():
        record.write_bytes(record.read_bytes()[:-9])
    assert vars(text.scan_corpus([file], **options)) == vars(first)
    os.utime(file, (1, 1))
    assert text.scan_corpus([file], **options).files[0].modified != first.files[0].modified


# Preparing.


TOKENIZER = text.byte_tokenizer()


def expected(texts):
    return text.build_stream([*texts, ""], TOKENIZER)  # of several documents each has its end


def assert_holds(prepared, train, validation):
    for stream, texts in [(prepared.train, train), (prepared.validation, validation)]:
        whole = expected(texts)
        np.testing.assert_array_equal(np.asarray(stream.tokens), whole.tokens[:-1])
        np.testing.assert_array_equal(stream.offsets, whole.offsets[:-1])
        assert stream.num_bytes == sum(len(one.encode()) for one in texts)


@pytest.mark.parametrize("shard_size", [1, 500, 10**6])
def test_prepared_tokens_are_those_of_the_documents(tmp_path, monkeypatch, shard_size):
    monkeypatch.setattr(prepared_corpus, "_GROUP", 100)
    corpus = scan(tmp_path, documents(60))
    done = []
    prepared = text.prepare_corpus(
        corpus, TOKENIZER, tmp_path, shard_size=shard_size, on_progress=done.append
    )
    assert_holds(prepared, *sides(corpus))
    assert done == sorted(done) and done[-1] == corpus.num_bytes


def test_document_that_goes_on_behind_validation_begins_anew(tmp_path, monkeypatch):
    """A long text file is drawn piece by piece."""
    monkeypatch.setattr(document_files, "_PIECE", 40)
    (tmp_path / "a.txt").write_text(prose(200))
    corpus = text.scan_corpus([tmp_path / "a.txt"], validation_fraction=0.3)
    runs = {False: [], True: []}
    last = None
    for piece, _ in corpus.pieces(corpora.Place()):
        side, _ = text_draws(piece.text.encode())
        for part, is_validation in corpus.holdout.parts(piece.text, side):
            if is_validation != last:
                runs[is_validation].append("")
            runs[is_validation][-1] += part
            last = is_validation
    assert len(runs[True]) > 3
    assert_holds(text.prepare_corpus(corpus, TOKENIZER, tmp_path), runs[False], runs[True])


def test_preparing_goes_on_behind_the_last_whole_shard(tmp_path, monkeypatch):
    corpus = scan(tmp_path, documents(60))
    encoded = []

    def count(tokenizer, texts, encode=text.Tokenizer.encode_documents):
        encoded.extend(texts)
        if len(encoded) > 30 and not failed:
            failed.append(True)
            raise KeyboardInterrupt
        return encode(tokenizer, texts)

    failed = []
    monkeypatch.setattr(text.Tokenizer, "encode_documents", count)
    with pytest.raises(KeyboardInterrupt):
        text.prepare_corpus(corpus, TOKENIZER, tmp_path, shard_size=700)
    shards = len(list((tmp_path / "corpora").glob("*/*.json")))
    assert 0 < shards
    encoded.clear()
    prepared = text.prepare_corpus(corpus, TOKENIZER, tmp_path, shard_size=700)
    assert 0 < len(encoded) < 60
    assert_holds(prepared, *sides(corpus))
    encoded.clear()
    text.prepare_corpus(corpus, TOKENIZER, tmp_path, shard_size=700)
    assert encoded == []


@pytest.mark.parametrize("write", [write_lines, write_parquet])
def test_shards_are_made_in_one_reading(tmp_path, monkeypatch, write):
    """A packed file, and one of columns, can only be read from its start."""
    name = "a.jsonl.gz" if write is write_lines else "a.parquet"
    corpus = text.scan_corpus([write(tmp_path / name, documents(60))], validation_fraction=0.3)
    read, starts = corpora.read_pieces, []

    def counted(*arguments, start, **options):
        starts.append(start)
        return read(*arguments, start=start, **options)

    monkeypatch.setattr(corpora, "read_pieces", counted)
    text.prepare_corpus(corpus, TOKENIZER, tmp_path, shard_size=500)
    (folder,) = (tmp_path / "corpora").iterdir()
    assert starts == [0] and len(list(folder.glob("*.json"))) > 3
    (folder / "00003.json").unlink()
    text.prepare_corpus(corpus, TOKENIZER, tmp_path, shard_size=500)
    assert len(starts) == 2 and starts[1] > 0


def test_shard_of_a_file_that_changes_is_not_written(tmp_path):
    corpus = scan(tmp_path, documents(60))
    changed = []

    def change(done):
        if done > corpus.num_bytes // 2 and not changed:
            changed.append(len(list((tmp_path / "corpora").glob("*/*.json"))))
            os.utime(tmp_path / "a.jsonl", (1, 1))

    with pytest.raises(DataError, match="a.jsonl' has changed while it was read"):
        text.prepare_corpus(corpus, TOKENIZER, tmp_path, shard_size=500, on_progress=change)
    assert changed == [len(list((tmp_path / "corpora").glob("*/*.json")))] and changed[0] > 1


def test_files_that_another_process_writes_are_left_alone(tmp_path):
    corpus = scan(tmp_path, documents(60))
    text.prepare_corpus(corpus, TOKENIZER, tmp_path, shard_size=1000)
    (folder,) = (tmp_path / "corpora").iterdir()
    (folder / "00001.json").unlink()
    young, old = (folder / f".{digit * 16}.tmp" for digit in "01")
    for draft in (young, old):
        draft.write_bytes(b"")
    os.utime(old, (1, 1))
    prepared = text.prepare_corpus(corpus, TOKENIZER, tmp_path, shard_size=1000)
    assert_holds(prepared, *sides(corpus))
    assert young.exists() and not old.exists()


def test_without_a_folder_the_tokens_are_in_memory(tmp_path):
    corpus = scan(tmp_path, documents(60))
    prepared = text.prepare_corpus(corpus, TOKENIZER, None, shard_size=500)
    assert_holds(prepared, *sides(corpus))
    assert type(prepared.train.tokens) is np.ndarray


def test_other_tokenizers_have_other_files(tmp_path):
    corpus = scan(tmp_path, documents(9))
    other = text.train_bpe(corpus.sample, 300)
    for tokenizer in (TOKENIZER, other, TOKENIZER):
        text.prepare_corpus(corpus, tokenizer, tmp_path)
    assert len(list((tmp_path / "corpora").iterdir())) == 2


def test_windows_over_shards_are_those_of_one_array(tmp_path):
    corpus = scan(tmp_path, documents(40))
    stream = text.prepare_corpus(corpus, TOKENIZER, tmp_path, shard_size=300).train
    whole = text.TokenStream(np.asarray(stream.tokens), stream.offsets)
    for cut in (text.Windows, text.PackedDocuments):
        ours, theirs = cut(stream, 37), cut(whole, 37)
        assert len(ours) == len(theirs) > 10
        for one, two in zip(ours, theirs, strict=True):
            for name in one:
                np.testing.assert_array_equal(one[name], two[name])
    assert int(stream.tokens[-1]) == whole.tokens[-1]
    with pytest.raises(IndexError):
        stream.tokens[whole.tokens.size]


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
    found = pieces(tmp_path / "a.arrow", field="body")
    assert [piece.text for piece in found] == ["one", "two\nthree", "four"]
    assert pieces(tmp_path / "a.arrow", field="body", start=found[0].end) == found[1:]
    with pytest.raises(DataError, match="must have the column 'text' .* got n, body"):
        pieces(tmp_path / "a.arrow")
    (tmp_path / "b.arrow").write_bytes(b"text that is none")
    with pytest.raises(DataError, match="b.arrow' cannot be read as Arrow"):
        pieces(tmp_path / "b.arrow")


def test_folder_of_a_dataset_stands_for_its_files_in_their_order(tmp_path):
    folder = write_dataset(tmp_path / "saved", [["a", "b"], ["c"]])
    assert text.read_documents([str(folder)], field="body") == ["c", "a", "b"]


def test_folders_that_are_no_dataset_are_told_apart(tmp_path):
    (tmp_path / "plain").mkdir()
    with pytest.raises(DataError, match="a path must be a file, got the folder '.*plain'"):
        text.read_documents([str(tmp_path / "plain")])
    (tmp_path / "dict").mkdir()
    (tmp_path / "dict" / "dataset_dict.json").write_text("{}")
    write_dataset(tmp_path / "dict" / "test", [["a"]])
    with pytest.raises(DataError, match="is a dataset with the splits test; name one, such as"):
        text.read_documents([str(tmp_path / "dict")])
    selected = write_dataset(tmp_path / "some", [["a"]], _indices_files=[{"filename": "i.arrow"}])
    with pytest.raises(DataError, match="selection of another dataset; .* flatten_indices"):
        text.read_documents([str(selected)])
    (selected / "state.json").write_text("[]")
    with pytest.raises(DataError, match="state.json' is not valid"):
        text.read_documents([str(selected)])


def test_what_cannot_be_decoded_in_a_column_is_named_or_left_out(tmp_path):
    column = pyarrow.array([b"one", b"\xff\xfe", b"two"]).cast(pyarrow.binary())
    offsets, data = column.buffers()[1:]
    column = pyarrow.StringArray.from_buffers(3, offsets, data)
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), path)
    with pytest.raises(DataError, match=r"row 2, must have a text .*, got b'.xff.xfe'"):
        pieces(path)
    bad = BadRecords("skip")
    assert [piece.text for piece in read_pieces(path, bad)] == ["one", "two"] and bad.count == 1


def test_lines_are_counted_for_the_records_that_are_shown_alone(tmp_path, monkeypatch):
    counted = []
    monkeypatch.setattr(record_files, "line_at", lambda *place: counted.append(place) or 1)
    (tmp_path / "a.jsonl").write_text("{\n" * 50)
    bad = BadRecords("skip")
    with pytest.raises(DataError, match="must have text"):
        list(read_pieces(tmp_path / "a.jsonl", bad))
    assert bad.count == 50 and len(counted) == len(bad.shown) == 5


def test_the_same_bytes_of_another_kind_are_another_corpus(tmp_path):
    found = []
    for name in ("a.txt", "a.jsonl"):
        write_lines(tmp_path / name, ["one", "two"])
        found.append(text.scan_corpus([tmp_path / name], validation_fraction=0).fingerprint)
    assert found[0] != found[1]
