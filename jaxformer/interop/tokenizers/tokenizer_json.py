"""`tokenizer.json` with the settings of the files next to it, which count as in transformers."""

import json
import pathlib
from typing import Any

import tokenizers

from jaxformer.interop.tokenizers.settings import TokenizerSettings, add_tokens
from jaxformer.text import Tokenizer
from jaxformer.text.tokenizers.spelling import MARKED_SPACE, flat_steps

_BYTE_LEVEL = ("GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "Qwen2Tokenizer",
               "GPTNeoXTokenizer")  # fmt: skip
_WORD_PIECES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")


def load_tokenizer_json(
    path: pathlib.Path, kind: str | None, settings: TokenizerSettings
) -> tokenizers.Tokenizer:
    """Loads `tokenizer.json`, as the tokenizer class `kind` of transformers does.

    Tokens of the other files are added, or change the flags of a token that exists. The classes of
    some families make the steps of their tokenizer from `tokenizer_config.json`; None is for those
    that take `tokenizer.json` as it is.
    """
    state = json.loads(Tokenizer.load(path).to_json())
    words, normalizers = (flat_steps(state[key]) for key in ("pre_tokenizer", "normalizer"))
    is_byte_level = any(step["type"] == "ByteLevel" for step in words)
    if kind in _BYTE_LEVEL:
        for step in words:
            if step["type"] == "ByteLevel":
                step["add_prefix_space"] = settings.flag("add_prefix_space", False)
    elif kind in _WORD_PIECES:
        for step in normalizers:
            if step["type"] == "BertNormalizer":
                step["lowercase"] = settings.flag("do_lower_case", True)
                step["strip_accents"] = settings.values.get("strip_accents")
                step["handle_chinese_chars"] = settings.flag("tokenize_chinese_chars", True)
    elif kind == "LlamaTokenizer" and not is_byte_level:
        state |= llama_steps(settings)
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state))
    add_tokens(tokenizer, settings)
    return tokenizer


def llama_steps(settings: TokenizerSettings) -> dict[str, Any]:
    """Steps of a Llama tokenizer, which puts a space before a text (legacy: after tokens, too)."""
    adds_space = settings.flag("add_prefix_space", True)
    scheme = "always" if settings.flag("legacy", False) else "first"
    words = {"type": "Metaspace", "replacement": MARKED_SPACE, "split": False}
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": MARKED_SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if adds_space:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": None,
        "pre_tokenizer": words | {"prepend_scheme": scheme if adds_space else "never"},
        "decoder": {"type": "Sequence", "decoders": steps},
    }
