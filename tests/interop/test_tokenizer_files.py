"""Tokenizers of folders of every kind, against what transformers has made of texts."""

import json
import sys

import pytest
import tokenizers

from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.interop.tokenizers.loading import load_tokenizers
from jaxformer.text import byte_tokenizer
from tests.interop import tokenizer_folders
from tests.interop.tokenizer_folders import FOLDERS, GOLDEN, ids_with_special_tokens, texts_of
from tests.text.foreign_tokenizers import foreign_json

EXPECTED = json.loads(GOLDEN.read_text())


def load(folder):
    model_type = json.loads((folder / "config.json").read_text())["model_type"]
    return load_tokenizers(folder, model_type)


@pytest.mark.parametrize("name", FOLDERS)
def test_texts_are_read_as_in_transformers_with_the_tokens_around_them(name, tmp_path):
    FOLDERS[name](tmp_path)
    loaded = load(tmp_path)
    for side, tokenizer in (("source", loaded.source), ("target", loaded.target)):
        for text, ids in zip(texts_of(name), EXPECTED[name][side], strict=True):
            assert ids_with_special_tokens(tokenizer, text) == ids, (side, text)
            again = type(tokenizer).from_json(tokenizer.to_json()).with_roles(tokenizer.roles)
            assert ids_with_special_tokens(again, text) == ids


@pytest.mark.parity
@pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses, which Marian does not use here
@pytest.mark.parametrize("name", FOLDERS)
def test_golden_ids_are_those_of_transformers(name, tmp_path):
    FOLDERS[name](tmp_path)
    assert tokenizer_folders.expected(name, tmp_path) == EXPECTED[name]


@pytest.mark.parametrize(
    ("name", "token"),
    [("nllb", "kan_Knda"), ("mbart", "hi_IN"), ("mbart-50", "hi_IN"), ("m2m-100", "__kn__")],
)
def test_languages_are_special_tokens(name, token, tmp_path):
    FOLDERS[name](tmp_path)
    source = load(tmp_path).source
    language = source.special_id(token)
    assert language is not None
    assert language not in source.encode(f"a {token} b").tolist()
    assert source.decode([*source.encode("hello"), language]) == "hello"


def test_legacy_nllb_tokenizer_puts_the_language_after_the_text(tmp_path):
    tokenizer_folders.nllb(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "legacy_behaviour": True}))
    for side, tokenizer in zip(("source", "target"), load(tmp_path), strict=True):
        for text, (language, *ids) in zip(texts_of("nllb"), EXPECTED["nllb"][side], strict=True):
            assert ids_with_special_tokens(tokenizer, text) == [*ids, language]


def test_pieces_that_the_vocabulary_lacks_are_read_in_other_pieces(tmp_path):
    tokenizer_folders.marian(tmp_path)
    path = tmp_path / "vocab.json"
    vocab = json.loads(path.read_text())
    piece = "▁the"
    path.write_text(
        json.dumps({("▁xyz" if name == piece else name): i for name, i in vocab.items()})
    )
    source = load(tmp_path).source
    assert source.vocab_size == len(vocab)
    assert "".join(source.token_texts(source.encode("the"))) == " the"


def test_piece_is_a_language_code_of_marian_only_if_it_ends_as_it_begins(tmp_path):
    tokenizer_folders.marian(tmp_path)
    path = tmp_path / "vocab.json"
    vocab = json.loads(path.read_text())
    path.write_text(json.dumps({**vocab, ">>good": len(vocab), "morning<<": len(vocab) + 1}))
    encode, text = load(tmp_path).source.encode, "kan<< >>good morning<< eng"
    assert not {len(vocab), len(vocab) + 1} & set(encode(text).tolist())
    assert vocab[">>kan<<"] in encode(">>kan<< good").tolist()


def test_spellings_of_special_tokens_are_text_everywhere(tmp_path):
    for name, write in FOLDERS.items():
        folder = tmp_path / name
        folder.mkdir()
        write(folder)
        for tokenizer in load(folder):
            special = [t for t in ("<s>", "</s>", "<pad>", "[SEP]") if tokenizer.special_id(t)]
            ids = {tokenizer.special_id(t) for t in special}
            assert not ids & set(tokenizer.encode("a " + " ".join(special)).tolist()), name


def test_tokenizer_json_comes_first(tmp_path):
    tokenizer_folders.gpt2(tmp_path)
    tokenizer = byte_tokenizer()
    tokenizer.save(tmp_path / "tokenizer.json")
    assert load(tmp_path).source.encode("a").tolist() == [97]


def test_folder_that_transformers_cannot_read_is_one_error_with_its_cause(tmp_path):
    tokenizer_folders.t5(tmp_path)
    (tmp_path / "spiece.model").write_bytes(b"\x0a\x7f")
    with pytest.raises(CheckpointError, match="transformers cannot read the tokenizer of") as error:
        load(tmp_path)
    assert error.value.__cause__ is not None


def test_without_transformers_the_package_to_install_is_named(tmp_path, monkeypatch):
    tokenizer_folders.bert(tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    message = r'has vocab.txt and no tokenizer.json, which needs transformers, .* "jaxformer\[hf\]"'
    with pytest.raises(ConfigError, match=message):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "change", "why"),
    [
        (
            "qwen2",
            "tokenizer_config.json",
            {"added_tokens_decoder": {"1": 5}},
            "tokens by id, got {'1': 5}",
        ),
        (
            "qwen2",
            "tokenizer_config.json",
            {"added_tokens_decoder": 5},
            "must have tokens by id, got 5",
        ),
        ("nllb", "tokenizer_config.json", {"src_lang": "xx"}, "'xx', which surrounds texts, is"),
    ],
)
def test_damaged_settings_beside_a_tokenizer_json_are_one_clear_error(
    name, file, change, why, tmp_path
):
    FOLDERS[name](tmp_path)
    tokenizer = load(tmp_path).source
    tokenizer.save(tmp_path / "tokenizer.json")
    path = tmp_path / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=why):
        load(tmp_path)


# tokenizer.json is read as it is, with the tokens that the file beside it adds.
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
    "space of no class": ("gpt2", "llama", PLAIN | {"add_prefix_space": True}, {}),
    "llama as it is": ("llama 2", "mistral", {"tokenizer_class": "LlamaTokenizer"}, {}),
    "llama of bytes": ("llama 3", "llama", {"tokenizer_class": "LlamaTokenizer"}, {}),
    "case of no class": ("bert", "bert", PLAIN | {"do_lower_case": False}, {}),
}  # fmt: skip


def with_settings(tmp_path, name):
    return write_json(tmp_path, *CASES[name])


def write_json(tmp_path, tokenizer, model_type, config, files):
    values = json.loads(foreign_json(tokenizer)) | {"truncation": None, "padding": None}
    files = {"tokenizer_config.json": config, "config.json": {"model_type": model_type}} | files
    for file, content in {"tokenizer.json": values, **files}.items():
        (tmp_path / file).write_text(json.dumps(content))
    return load_tokenizers(tmp_path, model_type).source


@pytest.mark.parity
@pytest.mark.parametrize("name", CASES)
def test_ids_and_special_tokens_are_those_of_transformers(tmp_path, name):
    import transformers

    tokenizer = tokenizers.Tokenizer.from_str(with_settings(tmp_path, name).to_json())
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert tokenizer.encode(text).ids == theirs(text).input_ids
    special = [i for i, token in theirs.added_tokens_decoder.items() if token.special]
    assert sorted(special) == sorted(
        i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special
    )
    assert tokenizer.get_vocab_size() == len(theirs)


# Ids of transformers 5.24.
@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [
        ("added token", "a<|end|>", [65, 320]),
        ("spaces", "<|endoftext|> x <|endoftext|> y", [0, 88, 0, 89]),
        ("space of no class", "Work, the", [283, 12, 274]),
    ],
)
def test_added_tokens_count(tmp_path, name, text, ids):
    tokenizer = tokenizers.Tokenizer.from_str(with_settings(tmp_path, name).to_json())
    assert tokenizer.encode(text, add_special_tokens=False).ids == ids


def test_end_that_only_the_config_knows_ends_texts(tmp_path):
    tokenizer = with_settings(tmp_path, "added token")
    assert tokenizer.end_of_text == 320 and tokenizer.vocab_size == 321
    assert 320 not in tokenizer.encode("a<|end|>").tolist()


def test_added_token_with_another_id_is_refused(tmp_path):
    tokenizer, model_type, config, files = CASES["added token"]
    wrong = config | {"added_tokens_decoder": added(325, "<|end|>")}
    with pytest.raises(CheckpointError, match="has the id 325, but the vocabulary needs 320"):
        write_json(tmp_path, tokenizer, model_type, wrong, files)
