"""`tokenizer.json` with the settings of the files beside it, which count as in transformers."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import tokenizers

from jaxformer.interop.tokenizers.settings import add_tokens
from jaxformer.text import Tokenizer
from jaxformer.text.tokenizers.spelling import MARKED_SPACE, flat_steps

# Model types for which transformers 5 takes tokenizer.json as it is, whatever class is named,
_AS_IT_IS = ("mistral", "mixtral", "phi3", "olmo2", "olmo3", "granite", "modernbert", "umt5")
# and others whose folder may name no class.
_CLASSES = {
    "bart": "BartTokenizer", "bert": "BertTokenizer", "distilbert": "BertTokenizer",
    "electra": "BertTokenizer", "gpt2": "GPT2Tokenizer", "gptj": "GPT2Tokenizer",
    "gpt_neox": "GPTNeoXTokenizer", "olmo": "GPTNeoXTokenizer", "opt": "GPT2Tokenizer",
    "phi": "GPT2Tokenizer", "qwen2": "Qwen2Tokenizer", "qwen3": "Qwen2Tokenizer",
    "qwen3_moe": "Qwen2Tokenizer", "roberta": "RobertaTokenizer", "starcoder2": "GPT2Tokenizer",
}  # fmt: skip
_BYTE_LEVEL = ("GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "Qwen2Tokenizer",
               "GPTNeoXTokenizer")  # fmt: skip
_WORD_PIECES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")


def load_tokenizer_json(
    folder: pathlib.Path, model_type: str, config: Mapping[str, Any]
) -> tokenizers.Tokenizer:
    """Loads `tokenizer.json`, some steps of which the classes of transformers make themselves."""
    state = json.loads(Tokenizer.load(folder / "tokenizer.json").to_json())
    words, normalizers = (flat_steps(state[key]) for key in ("pre_tokenizer", "normalizer"))
    bytes_of_words = [step for step in words if step["type"] == "ByteLevel"]
    name = config.get("tokenizer_class") or _CLASSES.get(model_type)
    kind = None if model_type in _AS_IT_IS else str(name).removesuffix("Fast")
    if kind in _BYTE_LEVEL:
        for step in bytes_of_words:
            step["add_prefix_space"] = bool(config.get("add_prefix_space"))
    elif kind in _WORD_PIECES:
        for step in normalizers:
            if step["type"] == "BertNormalizer":
                step["lowercase"] = bool(config.get("do_lower_case", True))
                step["strip_accents"] = config.get("strip_accents")
                step["handle_chinese_chars"] = bool(config.get("tokenize_chinese_chars", True))
    elif kind == "LlamaTokenizer" and not bytes_of_words:
        state |= _llama_steps(config)
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state))
    add_tokens(tokenizer, folder, config)
    return tokenizer


def _llama_steps(config: Mapping[str, Any]) -> dict[str, Any]:
    """Steps of a Llama tokenizer, which puts a space before a text (legacy: after tokens, too)."""
    adds_space = config.get("add_prefix_space") is not False
    scheme = "always" if config.get("legacy") else "first"
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
