"""Tokenizers of folders of every kind, against what transformers has made of texts."""

import json
import sys

import pytest

from jaxformer.errors import ConfigError
from jaxformer.text import byte_tokenizer
from tests.interop import tokenizer_folders
from tests.interop.tokenizer_folders import FOLDERS, GOLDEN, ids_with_special_tokens, load, texts_of

EXPECTED = json.loads(GOLDEN.read_text())


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


def test_spellings_of_special_tokens_are_text_everywhere(tmp_path):
    for name, write in FOLDERS.items():
        folder = tmp_path / name
        folder.mkdir()
        write(folder)
        for tokenizer in load(folder):
            special = [t for t in ("<s>", "</s>", "<pad>", "[SEP]") if tokenizer.special_id(t)]
            ids = {tokenizer.special_id(t) for t in special}
            assert not ids & set(tokenizer.encode("a " + " ".join(special)).tolist()), name


def test_tokenizer_json_comes_first_as_it_is_with_the_added_tokens_of_the_config(tmp_path):
    tokenizer_folders.gpt2(tmp_path)
    byte_tokenizer().save(tmp_path / "tokenizer.json")
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": {"content": "b"}}')
    config = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}
    names = {"258": "<|end|>", "257": "<|a|>"}
    added = {i: {"content": name, "special": True, "lstrip": False} for i, name in names.items()}
    ends = []
    for more in ({}, {"added_tokens_decoder": added, "eos_token": "<|end|>"}):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | more))
        source = load(tmp_path).source
        assert source.encode("a").tolist() == [97]
        ends.append(source.end_of_text)
    assert ends == [98, 258] and source.special_id("<|a|>") == 257
    assert 258 not in source.encode("a<|end|>").tolist()


def test_language_that_the_tokenizer_lacks_is_refused(tmp_path):
    tokenizer_folders.nllb(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"src_lang": "ka"}))
    with pytest.raises(ConfigError, match="one of the model's, such as kab_Latn, .*, got 'ka'"):
        load(tmp_path)


def test_without_transformers_the_package_to_install_is_named(tmp_path, monkeypatch):
    tokenizer_folders.bert(tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    message = r'has vocab.txt and no tokenizer.json, which needs transformers, .* "jaxformer\[hf\]"'
    with pytest.raises(ConfigError, match=message) as error:
        load(tmp_path)
    assert isinstance(error.value.__cause__, ImportError)
