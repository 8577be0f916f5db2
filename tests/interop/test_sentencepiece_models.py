"""Converted SentencePiece models, against what the package of SentencePiece has made of texts."""

import dataclasses
import json
import random

import pytest

from jaxformer.errors import CheckpointError, ConfigError, DataError
from jaxformer.interop.tokenizers.sentencepiece_files import (
    Piece,
    SentencePieceModel,
    parse_sentencepiece,
    read_sentencepiece,
)
from jaxformer.interop.tokenizers.sentencepiece_models import convert_sentencepiece
from jaxformer.text import Tokenizer
from tests.interop.sentencepiece_golden import FOLDER, MODELS, TEXTS, expected, train


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    model = read_sentencepiece(FOLDER / f"{request.param}.model")
    golden = json.loads((FOLDER / f"{request.param}.json").read_text())
    return model, Tokenizer(convert_sentencepiece(model, request.param)), golden


def test_converted_model_reads_texts_as_sentencepiece(case):
    _, tokenizer, golden = case
    assert [row["text"] for row in golden["texts"]] == TEXTS
    for row in golden["texts"]:
        assert tokenizer.encode(row["text"]).tolist() == row["ids"], row["text"]


def test_converted_model_decodes_as_sentencepiece(case):
    _, tokenizer, golden = case
    for row in golden["texts"]:
        assert tokenizer.decode(row["ids"]) == row["decoded"], row["text"]


def test_converted_model_has_the_pieces_as_tokens_and_survives_its_json(case):
    model, tokenizer, golden = case
    assert [piece.text for piece in model.pieces] == golden["pieces"]
    again = Tokenizer.from_json(tokenizer.to_json())
    for each in (tokenizer, again):
        assert each.vocab_size == len(golden["pieces"])
        assert each.special_id("</s>") == golden["pieces"].index("</s>")
        assert [each.encode(text).tolist() for text in TEXTS] == [
            row["ids"] for row in golden["texts"]
        ]


def test_streamed_text_is_the_decoded_one(case):
    _, tokenizer, golden = case
    for row in golden["texts"]:
        stream = tokenizer.stream()
        pushed = [stream.push([token]) for token in row["ids"]]
        assert "".join(pushed) + stream.flush() == row["decoded"]


def test_text_that_is_skipped_is_not_streamed(case):
    """Of a prompt no byte is held back, though the next token might be of the same character."""
    _, tokenizer, golden = case
    (word,) = tokenizer.encode("a").tolist()[-1:]
    for row in golden["texts"]:
        stream = tokenizer.stream()
        stream.skip(row["ids"])
        behind = tokenizer.decode([*row["ids"], word]).removeprefix(row["decoded"])
        assert stream.push([word]) + stream.flush() == behind


def tiny(**changes):
    """A model of a few letters."""
    types = [Piece("<unk>", 0.0, "unknown"), Piece("</s>", 0.0, "control")]
    normal = [Piece(text, -1.0 - i, "normal") for i, text in enumerate(["ab", "a", "b", "▁"])]
    return dataclasses.replace(SentencePieceModel((*types, *normal), "unigram", 0), **changes)


def with_piece(text, kind, **changes):
    return tiny(pieces=(*tiny().pieces, Piece(text, -9.0, kind)), **changes)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (tiny(model_type="word"), "model_type 'word'"),
        (tiny(model_type="char"), "model_type 'char'"),
        (tiny(escape_whitespaces=False), "escape_whitespaces=false"),
        (tiny(whitespace_as_suffix=True), "treat_whitespace_as_suffix=true"),
        (tiny(has_denormalizer=True), "a denormalizer"),
        (with_piece("bb", "unused"), "the unused piece 'bb'"),
        (with_piece("<sep>", "user_defined"), "the user-defined symbol '<sep>'"),
        (with_piece("<sep>", "user_defined", model_type="bpe"), "the user-defined symbol"),
        (with_piece("<0x0A>", "byte"), "the byte piece '<0x0A>' without byte_fallback"),
        (with_piece("<0x0A>", "byte", byte_fallback=True), "with 1 byte pieces"),
        (with_piece("ac", "normal"), "whose character 'c' is not a piece"),
    ],
)
def test_what_cannot_be_expressed_is_refused_by_name(model, named):
    convert_sentencepiece(tiny(), "x.model")
    with pytest.raises(ConfigError, match="^x.model: .* cannot represent ") as refused:
        convert_sentencepiece(model, "x.model")
    assert named in str(refused.value)


@pytest.mark.parametrize("charsmap", [b"\1", b"\4\0\0\0", b"\3\0\0\0" + bytes(8)])
def test_damaged_rules_of_normalization_are_refused(charsmap):
    with pytest.raises(DataError, match="x.model: the normalization rules are damaged"):
        convert_sentencepiece(tiny(charsmap=charsmap), "x.model")


def field(number, content, size=None):
    assert len(content) < 128 and number < 16
    return bytes([number << 3 | 2, len(content) if size is None else size]) + content


UNKNOWN = field(1, field(1, b"<unk>") + b"\x18\x02")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it has no pieces"),
        (b"\x0a", "it ends inside a number"),
        (b"<!DOCTYPE html>", "wire type 4"),
        (b"\x80" * 12, "more than 64 bits"),
        (b"\x02\x00", "has the number 0"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "bytes, but only 0 are left"),
        (UNKNOWN[:-1], "bytes, but only"),
        (UNKNOWN + b"\x12\xff\x7f", "has 16383 bytes, but only 0 are left"),
        (UNKNOWN + b"\x08\x01", "a piece must be bytes, got int"),
        (UNKNOWN + UNKNOWN, "exactly one piece must have the type unknown, got 2"),
        (UNKNOWN + field(1, field(1, b"<unk>")), "the same spelling"),
        (UNKNOWN + field(1, b""), "piece 1 must have 1 .. 4,096 bytes, got 0"),
        (UNKNOWN + field(1, field(1, b"\xff")), "piece 1 must be UTF-8"),
        (UNKNOWN + field(1, field(1, b"a") + b"\x18\x09"), "must be in 1 .. 6, got 9"),
        (UNKNOWN + field(1, field(1, b"a") + b"\x15\0\0\xc0\x7f"), "a finite number, got nan"),
        (UNKNOWN + field(2, b"\x18\x09"), "model_type must be in 1 .. 4, got 9"),
        (UNKNOWN + field(2, field(3, b"ab")), "model_type must be an integer"),
        (UNKNOWN + field(3, b"\x18\x02"), "must be 0 or 1, got 2"),
        (UNKNOWN + field(3, b"\x10\x02"), "precompiled_charsmap must be bytes"),
    ],
)
def test_damaged_files_are_refused(data, why, tmp_path):
    parse_sentencepiece(UNKNOWN)
    (tmp_path / "m.model").write_bytes(data)
    with pytest.raises(CheckpointError, match="is not a SentencePiece model, or is") as error:
        read_sentencepiece(tmp_path / "m.model")
    assert why in str(error.value)


def test_missing_file_is_one_error(tmp_path):
    with pytest.raises(CheckpointError, match="m.model cannot be read: No such file"):
        read_sentencepiece(tmp_path / "m.model")


def test_bytes_at_random_are_read_or_refused(tmp_path):
    data = (FOLDER / "unigram-rules.model").read_bytes()
    draw = random.Random(11)
    outcomes = set()
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(3):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            parse_sentencepiece(bytes(damaged[: draw.choice([None, draw.randrange(len(data))])]))
            outcomes.add("read")
        except ValueError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


@pytest.mark.parity
@pytest.mark.parametrize("name", MODELS)
def test_golden_files_are_what_the_package_says(name):
    golden = json.loads((FOLDER / f"{name}.json").read_text())
    assert expected(FOLDER / f"{name}.model") == golden


ALPHABET = (
    "ab etnsr.,  \n\t<>/0xAéüß▁😀ＡﬁΩ①漢\u00a0\x01\u200d\u0301\u0323\u0308"
    "ಕೆ\u0cc2\u0cd5ನ\u1112\u1161\u11ab"
)


@pytest.mark.parity
@pytest.mark.parametrize("name", ["nmt_nfkc", "nfkc_cf", *MODELS])
def test_random_texts_have_the_ids_of_the_package(name, tmp_path, monkeypatch):
    import sentencepiece

    options = {"model_type": "unigram", "normalization_rule_name": name}
    monkeypatch.setitem(MODELS, name, MODELS.get(name, options))
    path = train(tmp_path, name, vocab_size=600, step=9)
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokenizer = Tokenizer(convert_sentencepiece(read_sentencepiece(path), name))
    draw = random.Random(5)
    texts = ["".join(draw.choices(ALPHABET, k=draw.randrange(1, 25))) for _ in range(2000)]
    for text in [*TEXTS, *texts]:
        ids = model.encode(text)
        assert tokenizer.encode(text).tolist() == ids, text
        known = [token for token in ids if token != model.unk_id()]
        assert tokenizer.decode(known) == model.decode(known), text
