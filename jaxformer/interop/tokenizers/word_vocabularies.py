"""Tokenizers of GPT-2, RoBERTa, Qwen and BERT, from the files that predate tokenizer.json."""

import pathlib
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from jaxformer.errors import CheckpointError
from jaxformer.interop.tokenizers.settings import (
    TokenizerSettings,
    add_tokens,
    read_text,
    surround,
    surround_as_set,
)
from jaxformer.storage import damaged_download, read_object

# Pre-tokens of Qwen: contractions, letters, single digits, symbols, line breaks, other space.
_QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ROBERTA = ("Roberta", "Bart", "Longformer")


def load_byte_pairs(
    folder: pathlib.Path, kind: str, settings: TokenizerSettings
) -> tokenizers.Tokenizer:
    """Loads a byte-level BPE tokenizer from `vocab.json` and `merges.txt`."""
    roberta, qwen = kind.startswith(_ROBERTA), kind == "Qwen2Tokenizer"
    if not roberta and not qwen and kind != "GPT2Tokenizer":
        raise CheckpointError(
            f"{folder / 'vocab.json'} is for a {kind}, which is not supported; save it with "
            "transformers as tokenizer.json"
        )
    vocab = read_ids(folder / "vocab.json")
    merges = _read_merges(folder / "merges.txt", vocab)
    space = settings.flag("add_prefix_space", False)
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, merges, fuse_unk=False))
    words: Any = pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=not qwen)
    if qwen:
        tokenizer.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(_QWEN_WORDS), "isolated")
        words = pre_tokenizers.Sequence([split, words])
    tokenizer.pre_tokenizer = words
    tokenizer.decoder = decoders.ByteLevel()
    default = "<|endoftext|>"
    bos, eos = settings.name("bos", default), settings.name("eos", default)
    if roberta:
        bos, eos = settings.name("cls", "<s>"), settings.name("sep", "</s>")
    ends = [name for name in (bos, eos) if not qwen or name in vocab]
    add_tokens(tokenizer, settings)
    if roberta:
        defaults = ("<pad>", "<unk>", "<mask>")
        tokenizer.add_special_tokens([*ends, *(name for name in defaults if name in vocab)])
        surround(tokenizer, [bos], [eos], between=[eos, eos])
    else:
        tokenizer.add_special_tokens([name for name in ends if name in vocab])
        surround_as_set(tokenizer, settings, bos, eos)
    return tokenizer


def load_word_pieces(folder: pathlib.Path, settings: TokenizerSettings) -> tokenizers.Tokenizer:
    """Loads a WordPiece tokenizer from `vocab.txt`; CheckpointError if the file is damaged."""
    path = folder / "vocab.txt"
    lines = read_text(path).removesuffix("\n").split("\n")
    vocab = {line: index for index, line in enumerate(lines)}
    names = {
        role: settings.name(role, f"[{role.upper()}]")
        for role in ("unk", "cls", "sep", "pad", "mask")
    }
    for role in ("unk", "cls", "sep"):
        if names[role] not in vocab:
            raise damaged_download(path, f"it lacks the special token {names[role]!r}")
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=names["unk"]))
    accents = settings.values.get("strip_accents")
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.flag("tokenize_chinese_chars", True),
        strip_accents=None if accents is None else settings.flag("strip_accents", False),
        lowercase=settings.flag("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece("##")
    add_tokens(tokenizer, settings)
    tokenizer.add_special_tokens([name for name in names.values() if name in vocab])
    end = [names["sep"]]
    surround(tokenizer, [names["cls"]], end, between=end, second_type=1)
    return tokenizer


def read_ids(path: pathlib.Path) -> dict[str, int]:
    """Reads a JSON vocabulary, ids by token; CheckpointError unless the ids are 0, 1, 2, ..."""
    vocab = read_object(path)
    ids = [token_id for token_id in vocab.values() if type(token_id) is int]
    if not vocab or sorted(ids) != list(range(len(vocab))):
        rule = f"its values must be the ids 0 .. {len(vocab) - 1}, each once"
        raise damaged_download(path, rule)
    return vocab


def _read_merges(path: pathlib.Path, vocab: dict[str, int]) -> list[tuple[str, str]]:
    lines = read_text(path).split("\n")
    merges = []
    for number, line in enumerate(lines, start=1):
        if line.startswith("#version") or not line.strip():
            continue
        pair = line.split(" ")
        if len(pair) != 2 or not vocab.keys() >= {*pair, "".join(pair)}:
            raise CheckpointError(
                f"{path}, line {number}: a merge must be two tokens of vocab.json that form a "
                f"third, got {line[:80]!r}; download both files again"
            )
        merges.append((pair[0], pair[1]))
    return merges
