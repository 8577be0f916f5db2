"""Tokenizers of folders without tokenizer.json, as transformers converts them."""

import importlib
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from jaxformer.errors import ConfigError
from jaxformer.storage import read_object
from jaxformer.text.tokenizers.spelling import MARKED_SPACE

_FILES = (
    "source.spm", "spiece.model", "sentencepiece.bpe.model", "sentencepiece.model",
    "tokenizer.model", "vocab.json", "vocab.txt",
)  # fmt: skip
_UNIGRAM, _NORMAL = 1, 1  # model and piece types of SentencePiece
# Score per character of tokens that SentencePiece does not know. It is far below that of any other
# piece, so that these tokens cover as few characters as possible.
_RARE = -1e6
_UNKNOWN = "\U0010fffd"  # a private-use character, which no vocabulary has


def convert_tokenizers(
    folder: pathlib.Path,
) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer, Any] | None:
    """Tokenizers of input and output, and that of transformers; None without files."""
    names = [name for name in _FILES if (folder / name).exists()]
    if not names:
        return None
    try:
        auto = importlib.import_module("transformers").AutoTokenizer
        proto = importlib.import_module("sentencepiece.sentencepiece_model_pb2").ModelProto
    except ImportError as error:
        raise ConfigError(
            f'{folder} has {names[0]} and no tokenizer.json, which needs transformers, got "{error}'
            '"; pip install "jaxformer[hf]", or save the tokenizer with transformers as '
            "tokenizer.json"
        ) from error
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*sacremoses")  # Marian's ids do not depend on it
        slow = auto.from_pretrained(folder, trust_remote_code=False)
    source: tokenizers.Tokenizer | None = getattr(slow, "backend_tokenizer", None)
    if source is not None:
        return source, source, slow
    # Marian and M2M-100: SentencePiece cuts a text, and vocab.json has the ids of the pieces.
    vocabs = [read_object(folder / "vocab.json")]
    if (folder / "target.spm").exists():
        files, target_vocab = ["source.spm", "target.spm"], folder / "target_vocab.json"
        vocabs += [read_object(target_vocab) if target_vocab.exists() else vocabs[0]]
    else:
        files = ["sentencepiece.bpe.model"]
    converted = [
        _numbered_pieces(proto.FromString((folder / file).read_bytes()), vocab, slow)
        for file, vocab in zip(files, vocabs, strict=True)
    ]
    return converted[0], converted[-1], slow


def _numbered_pieces(proto: Any, ids: Mapping[str, int], slow: Any) -> tokenizers.Tokenizer:
    """Tokenizer of a SentencePiece model whose pieces have the ids of another file."""
    scores = {piece.piece: piece.score for piece in proto.pieces if piece.type == _NORMAL}
    names = sorted(ids, key=ids.__getitem__)
    charsmap = proto.normalizer_spec.precompiled_charsmap
    steps: list[Any] = [normalizers.Precompiled(charsmap)] if charsmap else []
    steps += [normalizers.Replace(Regex(r"\A +| +\z"), "")]
    steps += [normalizers.Replace(Regex(" {2,}"), " ")]
    model: Any
    if proto.trainer_spec.model_type == _UNIGRAM:
        special = {*slow.all_special_tokens}
        pieces = [
            (name, scores.get(name, 0.0 if name in special else _RARE * len(name) + 1))
            for name in names
        ]
        model = models.Unigram(pieces, ids[slow.unk_token])
        # SentencePiece reads a run of unknown characters as one piece.
        letters = "".join(rf"\x{{{ord(piece):X}}}" for piece in sorted(scores) if len(piece) == 1)
        steps.append(normalizers.Replace(Regex(f"[^ {letters}]{{2,}}"), _UNKNOWN))
    else:
        known = {name: scores[name] for name in names if name in scores}
        ranks = {name: rank for rank, name in enumerate(known)}
        merges = importlib.import_module("transformers.convert_slow_tokenizer").generate_merges(
            ranks, known
        )
        model = models.BPE(dict(ids), merges, unk_token=slow.unk_token, fuse_unk=True)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(MARKED_SPACE, "always", False)
    tokenizer.decoder = decoders.Metaspace(MARKED_SPACE)
    tokenizer.add_special_tokens([name for name in slow.all_special_tokens if name in ids])
    # Languages of M2M-100 follow the vocabulary; those of Marian, such as >>kan<<, are in it.
    languages: dict[str, int] = getattr(slow, "lang_token_to_id", {})
    tokenizer.add_special_tokens(sorted(languages, key=languages.__getitem__))
    codes = [name for name in names if name.startswith(">>") and name.endswith("<<")]
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in codes])
    surround(tokenizer, [], [slow.eos_token])
    return tokenizer


def surround(tokenizer: tokenizers.Tokenizer, before: Sequence[str], after: Sequence[str]) -> None:
    """Sets the special tokens around a text, by name."""
    ids = [(name, tokenizer.token_to_id(name)) for name in dict.fromkeys((*before, *after))]
    tokenizer.post_processor = TemplateProcessing(
        single=[*before, "$A", *after], special_tokens=ids
    )
