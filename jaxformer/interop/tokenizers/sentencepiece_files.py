"""Strict reading of SentencePiece model files: pieces, model type, and normalization."""

import dataclasses
import math
import pathlib
import struct
from collections.abc import Iterator
from typing import Literal, TypeVar

from jaxformer.errors import CheckpointError
from jaxformer.storage import read_download

# The format is the protobuf message ModelProto of sentencepiece_model.proto (Kudo and Richardson,
# "SentencePiece: A simple and language independent subword tokenizer", 2018). Fields by number:
_PIECES, _TRAINER, _NORMALIZER, _DENORMALIZER = 1, 2, 3, 5
_MAX_PIECES = 2**21
_MAX_PIECE = 2**12  # bytes

T = TypeVar("T", int, bytes)
Value = int | float | bytes
PieceType = Literal["normal", "unknown", "control", "user_defined", "unused", "byte"]
_TYPES: dict[int, PieceType] = {
    1: "normal", 2: "unknown", 3: "control", 4: "user_defined", 5: "unused", 6: "byte",
}  # fmt: skip
_MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5  # wire types


@dataclasses.dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary; its id is its index."""

    text: str  # a space is U+2581
    score: float  # log-probability (unigram), or minus the merge rank (BPE)
    type: PieceType


@dataclasses.dataclass(frozen=True)
class SentencePieceModel:
    """Content of a SentencePiece file, as far as it affects encoding and decoding."""

    pieces: tuple[Piece, ...]  # in order of the ids
    model_type: str  # "unigram", "bpe", "word" or "char"
    unk_id: int  # of the unknown piece
    byte_fallback: bool = False  # unknown characters become byte pieces
    whitespace_as_suffix: bool = False  # U+2581 ends a word instead of starting it
    charsmap: bytes = b""  # compiled normalization rules; empty for none
    add_dummy_prefix: bool = True  # a space is added before the text
    remove_extra_whitespaces: bool = True  # spaces around the text, and repeated ones
    escape_whitespaces: bool = True  # spaces become U+2581
    has_denormalizer: bool = False  # rules rewrite the decoded text


def read_sentencepiece(path: pathlib.Path) -> SentencePieceModel:
    """Reads a SentencePiece file, such as `spiece.model`; CheckpointError if that fails."""
    data = read_download(path)
    try:
        return parse_sentencepiece(data)
    except ValueError as error:
        raise CheckpointError(
            f"{path} is not a SentencePiece model, or is damaged: {error}; download it again"
        ) from None


def parse_sentencepiece(data: bytes) -> SentencePieceModel:
    """Parses the content of a SentencePiece file; ValueError with one line if it is invalid."""
    pieces: list[Piece] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    denormalizer: dict[int, Value] = {}
    parts = {_TRAINER: trainer, _NORMALIZER: normalizer, _DENORMALIZER: denormalizer}
    for number, value in _fields(data):
        if number == _PIECES:
            if len(pieces) == _MAX_PIECES:
                raise ValueError(f"it has more than {_MAX_PIECES:,} pieces")
            pieces.append(_piece(dict(_fields(_as(bytes, value, "a piece"))), len(pieces)))
        elif number in parts:
            # As in protobuf, repeated messages are merged; the last value of a field counts.
            parts[number].update(_fields(_as(bytes, value, "a group of settings")))
    if not pieces:
        raise ValueError("it has no pieces")
    model_type = _as(int, trainer.get(3, 1), "model_type")
    if model_type not in _MODEL_TYPES:
        raise ValueError(f"model_type must be in 1 .. 4, got {model_type}")
    unknown = [index for index, piece in enumerate(pieces) if piece.type == "unknown"]
    if len(unknown) != 1:
        raise ValueError(f"exactly one piece must have the type unknown, got {len(unknown)}")
    spellings = {piece.text for piece in pieces}
    if len(spellings) != len(pieces):
        raise ValueError("two pieces have the same spelling")
    return SentencePieceModel(
        tuple(pieces),
        _MODEL_TYPES[model_type],
        unknown[0],
        byte_fallback=_flag(trainer, 35, False),
        whitespace_as_suffix=_flag(trainer, 24, False),
        charsmap=_as(bytes, normalizer.get(2, b""), "precompiled_charsmap"),
        add_dummy_prefix=_flag(normalizer, 3, True),
        remove_extra_whitespaces=_flag(normalizer, 4, True),
        escape_whitespaces=_flag(normalizer, 5, True),
        has_denormalizer=bool(denormalizer.get(2)),
    )


def _piece(fields: dict[int, Value], index: int) -> Piece:
    text = _as(bytes, fields.get(1, b""), f"the text of piece {index}")
    score, kind = fields.get(2, 0.0), _as(int, fields.get(3, 1), f"the type of piece {index}")
    if not 0 < len(text) <= _MAX_PIECE:
        raise ValueError(f"piece {index} must have 1 .. {_MAX_PIECE:,} bytes, got {len(text):,}")
    if not isinstance(score, float) or not math.isfinite(score):
        raise ValueError(f"the score of piece {index} must be a finite number, got {score!r}")
    if kind not in _TYPES:
        raise ValueError(f"the type of piece {index} must be in 1 .. 6, got {kind}")
    try:
        return Piece(text.decode(), score, _TYPES[kind])
    except UnicodeDecodeError:
        raise ValueError(f"piece {index} must be UTF-8, got {text[:20]!r}") from None


def _flag(fields: dict[int, Value], number: int, default: bool) -> bool:
    value = fields.get(number, default)
    if value not in (0, 1) or isinstance(value, float | bytes):
        raise ValueError(f"field {number} of the settings must be 0 or 1, got {value!r}")
    return bool(value)


def _as(kind: type[T], value: Value, what: str) -> T:
    if not isinstance(value, kind):
        name = "an integer" if kind is int else kind.__name__
        raise ValueError(f"{what} must be {name}, got {type(value).__name__}")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Field numbers and values of a message; checks sizes against the remaining bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if not 0 < number < 2**29:
            raise ValueError(f"a field at byte {at} has the number {number}")
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_DOUBLE, _FLOAT):
            size = 8 if wire == _DOUBLE else 4
        else:
            raise ValueError(f"a field at byte {at} has the wire type {wire}")
        if size > len(data) - at:
            raise ValueError(
                f"a field at byte {at} has {size} bytes, but only {len(data) - at} are left"
            )
        content, at = data[at : at + size], at + size
        if wire == _BYTES:
            yield number, content
        else:
            yield number, struct.unpack("<d" if wire == _DOUBLE else "<f", content)[0]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(10):  # enough for 64 bits
        if at + index >= len(data):
            raise ValueError(f"it ends inside a number, at byte {len(data)}")
        byte = data[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if value >= 2**64:
                break
            return value, at + index + 1
    raise ValueError(f"the number at byte {at} has more than 64 bits")
