"""Conversion of SentencePiece models to tokenizers of the `tokenizers` library."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from jaxformer.errors import ConfigError, DataError
from jaxformer.interop.tokenizers.sentencepiece_files import Piece, SentencePieceModel
from jaxformer.text.tokenizers.charsmaps import Charsmap
from jaxformer.text.tokenizers.reading import LONGEST_MATCH
from jaxformer.text.tokenizers.spelling import MARKED_SPACE

# A word includes the spaces before it. If no piece has a space after another character, words can
# be encoded one by one.
_WORDS = rf"{MARKED_SPACE}+[^{MARKED_SPACE}]*|[^{MARKED_SPACE}]+"
_ONE_WORD = re.compile(rf"{MARKED_SPACE}*[^{MARKED_SPACE}]*")
_ALL_SPACES = 2**20
_UNKNOWN = "\U0010fffd"  # a private-use character, which no vocabulary has


def convert_sentencepiece(
    model: SentencePieceModel, where: str, *, vocab: Sequence[Piece] | None = None
) -> tokenizers.Tokenizer:
    """Converts a SentencePiece model to a tokenizer that encodes exactly like it."""
    # Only the unknown piece differs: a special token, which decodes to nothing. `vocab` has the
    # pieces in order of the ids if these are not SentencePiece's, perhaps with more characters.
    pieces = list(model.pieces if vocab is None else vocab)
    _require_expressible(model, where)
    unk_id = next(index for index, piece in enumerate(pieces) if piece.type == "unknown")
    made: Any
    if model.model_type == "unigram":
        scores = [(piece.text, piece.score) for piece in pieces]
        made = models.Unigram(scores, unk_id, model.byte_fallback)
    else:
        made = models.BPE(
            {piece.text: index for index, piece in enumerate(pieces)},
            mergeable_pairs(pieces),
            unk_token=pieces[unk_id].text,
            fuse_unk=True,
            byte_fallback=model.byte_fallback,
        )
    tokenizer = tokenizers.Tokenizer(made)
    steps = _normalizer_steps(model, where)
    known = {piece.text for piece in model.pieces if piece.type == "normal"}
    if any(p.type == "normal" and len(p.text) == 1 and p.text not in known for p in pieces):
        # SentencePiece encodes a run of unknown characters as one unknown piece.
        letters = "".join(rf"\x{{{ord(c):X}}}" for c in sorted(known) if len(c) == 1)
        steps.append(normalizers.Replace(Regex(f"[^{letters}]{{2,}}"), _UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(steps)
    if steps := _word_steps(model):
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = _decoder(model)
    tokenizer.add_tokens(
        [
            # Like SentencePiece, finds user-defined symbols in the normalized text.
            AddedToken(piece.text, normalized=piece.type == "user_defined", special=special)
            for piece in pieces
            if (special := piece.type in ("control", "unknown")) or piece.type == "user_defined"
        ]
    )
    return tokenizer


def mergeable_pairs(pieces: Iterable[Piece]) -> list[tuple[str, str]]:
    """Merges of a SentencePiece BPE vocabulary, in order of priority."""
    # The file has no merges: SentencePiece merges any two neighbors that form a piece, the piece
    # with the highest score first.
    normal = {p.text: index for index, p in enumerate(pieces) if p.type == "normal"}
    ranked = sorted((p for p in pieces if p.type == "normal"), key=lambda piece: -piece.score)
    pairs = []
    for piece in ranked:
        text = piece.text
        splits = [(text[:cut], text[cut:]) for cut in range(1, len(text))]
        known = [pair for pair in splits if pair[0] in normal and pair[1] in normal]
        pairs += sorted(known, key=lambda pair: (normal[pair[0]], normal[pair[1]]))
    return pairs


def _require_expressible(model: SentencePieceModel, where: str) -> None:
    """Raises ConfigError for the first setting that the library cannot represent."""

    def refuse(what: str) -> None:
        raise ConfigError(
            f"{where}: the tokenizers library cannot represent {what}; convert the model to a "
            "tokenizer.json with the tools that made it"
        )

    types: Mapping[str, list[str]] = {
        kind: [piece.text for piece in model.pieces if piece.type == kind]
        for kind in ("normal", "user_defined", "unused", "byte")
    }
    if model.model_type not in ("unigram", "bpe"):
        refuse(f"model_type {model.model_type!r}")
    if not model.escape_whitespaces:
        refuse("escape_whitespaces=false")
    if model.whitespace_as_suffix:
        refuse("treat_whitespace_as_suffix=true")
    if model.has_denormalizer:
        refuse("a denormalizer, which rewrites decoded text")
    if types["unused"]:
        refuse(f"the unused piece {types['unused'][0]!r}")
    if types["user_defined"] and (
        model.model_type != "bpe" or model.charsmap or model.add_dummy_prefix
        or model.remove_extra_whitespaces
    ):  # fmt: skip
        # The library would normalize the text on each side of a symbol separately.
        refuse(
            f"the user-defined symbol {types['user_defined'][0]!r} in a model that is not BPE or "
            "normalizes its text"
        )
    if model.byte_fallback and len(types["byte"]) != 256:
        refuse(f"byte_fallback with {len(types['byte'])} byte pieces instead of 256")
    if not model.byte_fallback and types["byte"]:
        refuse(f"the byte piece {types['byte'][0]!r} without byte_fallback")
    normal = set(types["normal"])
    for piece in types["normal"]:
        if len(piece) > 1 and not normal.issuperset(piece):
            missing = next(character for character in piece if character not in normal)
            refuse(f"the piece {piece!r}, whose character {missing!r} is not a piece")
        if model.model_type == "unigram" and model.byte_fallback and "<0" in piece:
            refuse(f"the piece {piece!r} together with byte pieces such as '<0x0A>'")


def _normalizer_steps(model: SentencePieceModel, where: str) -> list[Any]:
    steps: list[Any] = []
    if model.charsmap:
        try:
            Charsmap(model.charsmap)
            # Only other programs use the library's step, which differs for rare sequences.
            rules = normalizers.Precompiled(model.charsmap)
        except Exception as error:  # the library raises no narrower class
            raise DataError(f"{where}: {error}") from None
        mark = LONGEST_MATCH
        steps += [normalizers.Replace(Regex(mark["pattern"]["Regex"]), mark["content"]), rules]
    if model.remove_extra_whitespaces:
        steps.append(normalizers.Replace(Regex(r"\A +| +\z"), ""))
        steps.append(normalizers.Replace(Regex(" {2,}"), " "))
    steps.append(normalizers.Replace(" ", MARKED_SPACE))
    if model.remove_extra_whitespaces:
        steps.append(normalizers.Replace(Regex(rf"{MARKED_SPACE}+\z"), ""))
    if model.add_dummy_prefix:
        steps.append(normalizers.Prepend(MARKED_SPACE))
    return steps


def _word_steps(model: SentencePieceModel) -> list[Any]:
    steps: list[Any] = []
    normal = {piece.text for piece in model.pieces if piece.type == "normal"}
    if MARKED_SPACE in normal and all(map(_ONE_WORD.fullmatch, normal)):
        steps.append(pre_tokenizers.Split(Regex(_WORDS), "isolated"))
    if model.model_type == "unigram" and model.byte_fallback:
        # "<0x0A>" in a text is not a byte piece, so it is split; no piece spans the split.
        steps.append(pre_tokenizers.Split(Regex("(?<=<)(?=0x[0-9A-F]{2}>)"), "isolated"))
    return steps


def _decoder(model: SentencePieceModel) -> Any:
    steps: list[Any] = [decoders.Replace(MARKED_SPACE, " ")]
    if model.byte_fallback:
        steps.append(decoders.ByteFallback())
    steps.append(decoders.Fuse())
    if model.remove_extra_whitespaces:
        steps.append(decoders.Strip(" ", _ALL_SPACES, 0))
    elif model.add_dummy_prefix:
        steps.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(steps)
