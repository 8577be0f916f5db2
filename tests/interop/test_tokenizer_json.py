"""Settings of the files beside tokenizer.json count as they do in transformers."""

import json

import pytest
import tokenizers

from jaxformer.interop.tokenizers.loading import load_tokenizers
from tests.text.foreign_tokenizers import foreign_json

TEXTS = [
    "Work, the night", "a <|end|> b<|z|> c <|a|>x<|b|><|q|> d", "The Über — 東京.",
    "the </s> night <s>work", "<|endoftext|> x <|endoftext|> y",
]  # fmt: skip
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
PLAIN = {"tokenizer_class": "PreTrainedTokenizerFast"}


def added(token_id, content, special=True, **flags):
    return {str(token_id): {"content": content, "special": special, **FLAGS, **flags}}


END = {"added_tokens_decoder": added(320, "<|end|>"), "eos_token": "<|end|>"}
MAP = {"eos_token": {"content": "<|z|>", **FLAGS, "lstrip": True}}
# Name of a tokenizer, model type, tokenizer_config.json, and other files.
CASES = {
    "added token": ("gpt2", "gpt2", PLAIN | END, {}),
    "additional": ("gpt2", "llama", PLAIN | {"additional_special_tokens": ["<|a|>", "<|b|>"]}, {}),
    "extra": (
        "gpt2", "gpt2",
        PLAIN | {"extra_special_tokens": {"image_token": "<|a|>"}, "eos_token": "<|z|>"}, {},
    ),
    "a role of the model": ("gpt2", "gpt2", PLAIN | {"image_token": "<|a|>"}, {}),
    "other files": (
        "gpt2", "gpt2", PLAIN,
        {
            "special_tokens_map.json": MAP | {"additional_special_tokens": ["<|b|>"]},
            "added_tokens.json": {"<|z|>": 321, "<|q|>": 320},
        },
    ),
    "other files beside a decoder": (
        "gpt2", "gpt2", PLAIN | END, {"special_tokens_map.json": MAP},
    ),
    "no special token": (
        "gpt2", "gpt2",
        PLAIN | {"added_tokens_decoder": added(0, "<|endoftext|>", special=False)}, {},
    ),
    "spaces": (
        "gpt2", "gpt2",
        PLAIN | {"added_tokens_decoder": added(0, "<|endoftext|>", lstrip=True, rstrip=True)}, {},
    ),
    "space of a class": (
        "gpt2", "gpt2", {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}, {},
    ),
    "space of a model type": ("gpt2", "gpt2", {"add_prefix_space": True}, {}),
    "space of no class": ("gpt2", "llama", PLAIN | {"add_prefix_space": True}, {}),
    "space of another class": (
        "gpt2", "granite", {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}, {},
    ),
    "llama": ("llama 2", "llama", {"tokenizer_class": "LlamaTokenizer"}, {}),
    "llama legacy": (
        "llama 2", "llama", {"tokenizer_class": "LlamaTokenizerFast", "legacy": True}, {},
    ),
    "llama without a space": (
        "llama 2", "llama", {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False}, {},
    ),
    "llama as it is": ("llama 2", "mistral", {"tokenizer_class": "LlamaTokenizer"}, {}),
    "llama of bytes": ("llama 3", "llama", {"tokenizer_class": "LlamaTokenizer"}, {}),
    "start and end": (
        "llama 2", "llama",
        {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": True}, {},
    ),
    "case": ("bert", "bert", {"tokenizer_class": "BertTokenizer", "do_lower_case": False}, {}),
    "accents": ("bert", "bert", {"do_lower_case": False, "strip_accents": False}, {}),
    "signs": (
        "bert", "electra",
        {"tokenizer_class": "ElectraTokenizerFast", "tokenize_chinese_chars": False}, {},
    ),
    "case of no class": ("bert", "bert", PLAIN | {"do_lower_case": False}, {}),
}  # fmt: skip


def folder(tmp_path, name):
    return write(tmp_path, *CASES[name])


def write(tmp_path, tokenizer, model_type, config, files):
    values = json.loads(foreign_json(tokenizer)) | {"truncation": None, "padding": None}
    files = {"tokenizer_config.json": config, "config.json": {"model_type": model_type}} | files
    for file, content in {"tokenizer.json": values, **files}.items():
        (tmp_path / file).write_text(json.dumps(content))
    return load_tokenizers(tmp_path, model_type).source


@pytest.mark.parity
@pytest.mark.parametrize("name", CASES)
def test_ids_and_special_tokens_are_those_of_transformers(tmp_path, name):
    import transformers

    loaded = tokenizers.Tokenizer.from_str(folder(tmp_path, name).to_json())
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert loaded.encode(text).ids == theirs(text).input_ids
    special = [i for i, token in theirs.added_tokens_decoder.items() if token.special]
    assert sorted(special) == sorted(
        i for i, token in loaded.get_added_tokens_decoder().items() if token.special
    )
    assert loaded.get_vocab_size() == len(theirs)


# Ids of transformers 5.24.
@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [
        ("added token", "a<|end|>", [65, 320]),
        ("additional", "<|a|>x<|b|>", [320, 88, 321]),
        ("extra", "<|a|><|z|>", [321, 320]),
        ("other files", "b<|z|><|b|><|q|>", [66, 321, 322, 320]),
        ("spaces", "<|endoftext|> x <|endoftext|> y", [0, 88, 0, 89]),
        ("space of a class", "Work, the", [221, 283, 12, 274]),
        ("space of no class", "Work, the", [283, 12, 274]),
        ("llama", "</s> night <s>work", [2, 295, 319, 295, 1, 316]),
        ("llama legacy", " night <s>work", [295, 319, 295, 1, 295, 316]),
        ("llama without a space", "Work, the night", [330, 324, 315, 319]),
        ("case", "Work, the night", [1, 8, 57, 68]),
    ],
)
def test_settings_of_both_files_count(tmp_path, name, text, ids):
    tokenizer = tokenizers.Tokenizer.from_str(folder(tmp_path, name).to_json())
    assert tokenizer.encode(text, add_special_tokens=False).ids == ids


def test_end_that_only_the_config_knows_ends_texts(tmp_path):
    tokenizer = folder(tmp_path, "added token")
    assert tokenizer.end_of_text == 320 and tokenizer.vocab_size == 321
    assert 320 not in tokenizer.encode("a<|end|>").tolist()
