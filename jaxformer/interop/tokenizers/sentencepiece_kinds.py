"""Tokenizers from SentencePiece files, with the ids and special tokens of each model family."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Sequence

import tokenizers
from tokenizers import AddedToken

from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.interop.tokenizers import language_codes
from jaxformer.interop.tokenizers.sentencepiece_files import (
    Piece,
    SentencePieceModel,
    read_sentencepiece,
)
from jaxformer.interop.tokenizers.sentencepiece_models import convert_sentencepiece
from jaxformer.interop.tokenizers.settings import (
    TokenizerSettings,
    add_tokens,
    surround,
    surround_as_set,
)
from jaxformer.interop.tokenizers.tokenizer_json import llama_steps
from jaxformer.interop.tokenizers.word_vocabularies import read_ids
from jaxformer.text.tokenizers.reading import WITHOUT_ID

_LANGUAGE = re.compile(r"[a-z]{2,3}(_[A-Za-z]{2,4})?")
# Score per character of pieces that SentencePiece does not know. It is far below that of any other
# piece, so that these pieces cover as few characters as possible.
_RARE = -1e6
# fairseq tokenizers: languages, default language, and whether its token precedes the text.
_FAIRSEQ: dict[str, tuple[list[str], str, bool]] = {
    "MBartTokenizer": (language_codes.MBART, "en_XX", False),
    "MBart50Tokenizer": (language_codes.MBART_50, "en_XX", True),
    "NllbTokenizer": (language_codes.NLLB, "eng_Latn", True),
    "M2M100Tokenizer": (language_codes.M2M_100, "en", True),
    "XLMRobertaTokenizer": ([], "", False),
}


def load_t5(path: pathlib.Path, settings: TokenizerSettings) -> tokenizers.Tokenizer:
    """Loads T5's `spiece.model`, followed by the extra ids in reverse order."""
    model, extra = read_sentencepiece(path), settings.count("extra_ids", 100, 0)
    extra_ids = [_control(f"<extra_id_{i}>") for i in reversed(range(extra))]
    tokenizer = _convert(model, path, [*model.pieces, *extra_ids], settings)
    end = [settings.name("eos", "</s>")]
    surround(tokenizer, [], end, between=end)
    return tokenizer


def load_pegasus(path: pathlib.Path, settings: TokenizerSettings) -> tokenizers.Tokenizer:
    """Loads Pegasus' `spiece.model`, preceded by the special tokens of its pre-training."""
    model, offset = read_sentencepiece(path), settings.count("offset", 103, 2)
    eos = settings.name("eos", "</s>")
    masks = [settings.text("mask_token_sent") or "<mask_1>", settings.name("mask", "<mask_2>")]
    first = [settings.name("pad", "<pad>"), eos, *masks, *(f"<unk_{i}>" for i in range(2, offset))]
    tokenizer = _convert(model, path, [*map(_control, first), *model.pieces[2:]], settings)
    surround(tokenizer, [], [eos])
    return tokenizer


def load_llama(path: pathlib.Path, settings: TokenizerSettings) -> tokenizers.Tokenizer:
    """Loads `tokenizer.model` of Llama, Mistral or Gemma."""
    model = read_sentencepiece(path)
    pieces = list(model.pieces)
    taken = {piece.text for piece in pieces}
    for token_id, token in settings.added.items():
        # Renames placeholder pieces.
        if token_id < len(pieces) and token.content not in taken:
            pieces[token_id] = _control(token.content)
    tokenizer = _convert(model, path, pieces, settings)
    kind = (settings.text("tokenizer_class") or "").removesuffix("Fast")
    if kind == "LlamaTokenizer" and not settings.flag("legacy", False):
        # No space after special tokens, which the rules of SentencePiece would put there.
        steps = json.loads(tokenizer.to_str()) | llama_steps(settings)
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(steps))
    control = {piece.text for piece in pieces if piece.type == "control"}
    names = {
        role: settings.name(role, next((n for n in (f"<{role}>", other) if n in control), other))
        for role, other in (("bos", "<s>"), ("eos", "</s>"))
    }
    surround_as_set(tokenizer, settings, names["bos"], names["eos"])
    return tokenizer


def load_fairseq(
    path: pathlib.Path, kind: str, settings: TokenizerSettings
) -> tokenizers.Tokenizer:
    """Loads `sentencepiece.bpe.model` of mBART, NLLB or XLM-RoBERTa, with fairseq's first ids."""
    if kind not in _FAIRSEQ:
        raise CheckpointError(
            f"{path} is for a {kind}, which is not supported; save it with transformers as "
            "tokenizer.json"
        )
    model = read_sentencepiece(path)
    if [piece.text for piece in model.pieces[:3]] != ["<unk>", "<s>", "</s>"]:
        raise CheckpointError(
            f"{path} must begin with the pieces <unk>, <s> and </s>, got "
            f"{[piece.text for piece in model.pieces[:3]]}; it belongs to another kind of model"
        )
    unknown = Piece(settings.name("unk", "<unk>"), 0.0, "unknown")
    roles = (("bos", "<s>"), ("pad", "<pad>"), ("eos", "</s>"))
    first = [settings.name(role, default) for role, default in roles]
    last = [*_FAIRSEQ[kind][0], settings.name("mask", "<mask>")]
    pieces = [*map(_control, first), unknown, *model.pieces[3:], *map(_control, last)]
    tokenizer = _convert(model, path, pieces, settings)
    if kind == "XLMRobertaTokenizer":
        end = [settings.name("eos", "</s>")]
        surround(tokenizer, [settings.name("bos", "<s>")], end, between=end * 2)
    return tokenizer


def load_m2m_100(
    path: pathlib.Path, vocab: pathlib.Path, settings: TokenizerSettings
) -> tokenizers.Tokenizer:
    """Loads M2M-100's `sentencepiece.bpe.model`, with the ids of `vocab.json`."""
    model = read_sentencepiece(path)
    kind = settings.text("language_codes") or "m2m100"
    if kind not in ("m2m100", "wmt21"):
        raise CheckpointError(f"language_codes must be 'm2m100' or 'wmt21', got {kind!r}")
    codes = language_codes.M2M_100 if kind == "m2m100" else language_codes.WMT_21
    control = [settings.name(role, f"<{role}>") for role in ("pad", "mask")]
    control += [settings.name("bos", "<s>"), settings.name("eos", "</s>")]
    pieces = _numbered(model, path, read_ids(vocab), settings.name("unk", "<unk>"), control)
    named = [_control(f"__{code}__") for code in codes]
    # Pieces without an id come last.
    cut = next((i for i, p in enumerate(pieces) if p.text.startswith(WITHOUT_ID)), len(pieces))
    return _convert(model, path, [*pieces[:cut], *named, *pieces[cut:]], settings)


def load_marian_pair(
    folder: pathlib.Path, settings: TokenizerSettings
) -> list[tokenizers.Tokenizer]:
    """Loads Marian's `source.spm` and `target.spm`, with the ids of `vocab.json`."""
    vocab = folder / "vocab.json"
    target = folder / "target_vocab.json" if settings.flag("separate_vocabs", False) else vocab
    return [
        _load_marian(folder / "source.spm", vocab, settings),
        _load_marian(folder / "target.spm", target, settings),
    ]


def _load_marian(
    path: pathlib.Path, vocab: pathlib.Path, settings: TokenizerSettings
) -> tokenizers.Tokenizer:
    model, ids = read_sentencepiece(path), read_ids(vocab)
    control = [settings.name("eos", "</s>"), settings.name("pad", "<pad>"), "<s>"]
    # A language code, such as >>kan<<, is one token. The text after it is encoded on its own.
    codes = [name for name in ids if name.startswith(">>") and name.endswith("<<")]
    unknown = settings.name("unk", "<unk>")
    pieces = _numbered(model, path, ids, unknown, control)
    tokenizer = _convert(model, path, pieces, settings)
    tokenizer.add_tokens([AddedToken(code, normalized=False, special=False) for code in codes])
    surround(tokenizer, [], [settings.name("eos", "</s>")])
    return tokenizer


def set_language_token(
    tokenizer: tokenizers.Tokenizer, kind: str, settings: TokenizerSettings, side: str
) -> str | None:
    """Adds a language token around texts of `side`, "src" or "tgt"; returns its name, if any."""
    eos = settings.name("eos", "</s>")
    source = settings.text("src_lang")
    chosen = (settings.text("tgt_lang") or source) if side == "tgt" else source
    if not has_languages(kind):
        return None
    _, first, is_before = _FAIRSEQ[kind]
    name = language_name(kind, chosen or first)
    if kind == "NllbTokenizer" and settings.flag("legacy_behaviour", False):
        is_before = False
    surround(tokenizer, [name] if is_before else [], [eos] if is_before else [eos, name])
    return name


def has_languages(kind: str) -> bool:
    """Whether tokenizers of a class put a language token around texts."""
    return kind in _FAIRSEQ and bool(_FAIRSEQ[kind][0])


def language_name(kind: str, language: str) -> str:
    """Name of a language token."""
    return f"__{language}__" if kind == "M2M100Tokenizer" else language


def language_names(tokenizer: tokenizers.Tokenizer) -> list[str]:
    """Languages for which a tokenizer has tokens."""
    added = tokenizer.get_added_tokens_decoder().values()
    names = [token.content.strip("_") for token in added if token.special]
    return [name for name in names if _LANGUAGE.fullmatch(name)]


def _convert(
    model: SentencePieceModel,
    path: pathlib.Path,
    pieces: Sequence[Piece],
    settings: TokenizerSettings,
) -> tokenizers.Tokenizer:
    if len({piece.text for piece in pieces}) < len(pieces):
        raise CheckpointError(f"{path} has a piece that is spelled like a special token")
    tokenizer = convert_sentencepiece(model, str(path), vocab=pieces)
    add_tokens(tokenizer, settings)
    return tokenizer


def _control(name: str) -> Piece:
    return Piece(name, 0.0, "control")


def _numbered(
    model: SentencePieceModel,
    path: pathlib.Path,
    ids: dict[str, int],
    unknown: str,
    control: Sequence[str],
) -> list[Piece]:
    """Pieces in the order of a vocabulary, then those that it lacks."""
    if unknown not in ids:
        raise CheckpointError(f"the vocabulary of {path} lacks the unknown token {unknown!r}")
    if model.byte_fallback:
        raise ConfigError(f"{path}: byte_fallback with a separate vocabulary is not supported")
    known = {piece.text: piece for piece in model.pieces if piece.type == "normal"}
    pieces = []
    for name in sorted(ids, key=ids.__getitem__):
        if name == unknown:
            pieces.append(Piece(name, 0.0, "unknown"))
        elif name in control:
            pieces.append(_control(name))
        elif name in known:
            pieces.append(known[name])
        else:  # of the other language; used only for characters that are otherwise unknown
            pieces.append(Piece(name, _RARE * len(name) + 1, "normal"))
    missing = [piece for text, piece in known.items() if text not in ids]
    if missing and model.model_type != "unigram":
        raise ConfigError(
            f"{path}: a BPE model cannot represent the piece {missing[0].text!r}, which vocab.json "
            "lacks; save the tokenizer with transformers as tokenizer.json"
        )
    return [
        *pieces,
        *(dataclasses.replace(piece, text=WITHOUT_ID + piece.text) for piece in missing),
    ]
