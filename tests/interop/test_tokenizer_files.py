"""Tokenizers of folders of every kind, against what transformers has made of texts."""

import json

import pytest

from jaxformer.errors import CheckpointError
from jaxformer.interop.tokenizers.loading import load_tokenizers
from tests.interop import tokenizer_folders
from tests.interop.sentencepiece_golden import FOLDER
from tests.interop.tokenizer_folders import FOLDERS, GOLDEN, ids_with_special_tokens, texts_of

EXPECTED = json.loads(GOLDEN.read_text())


def load(folder):
    model_type = json.loads((folder / "config.json").read_text())["model_type"]
    return load_tokenizers(folder, model_type)


@pytest.mark.parametrize("name", FOLDERS)
def test_texts_are_read_as_in_transformers_with_the_tokens_around_them(name, tmp_path):
    FOLDERS[name](tmp_path)
    found = load(tmp_path)
    for side, tokenizer in (("source", found.source), ("target", found.target)):
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


def test_one_tokenizer_is_the_same_object(tmp_path):
    tokenizer_folders.t5(tmp_path)
    found = load(tmp_path)
    assert found.source is found.target


@pytest.mark.parametrize(
    ("name", "token"),
    [("nllb", "kan_Knda"), ("mbart", "hi_IN"), ("mbart-50", "hi_IN"), ("m2m-100", "__kn__")],
)
def test_languages_are_special_tokens(name, token, tmp_path):
    FOLDERS[name](tmp_path)
    found = load(tmp_path).source
    language = found.special_id(token)
    assert language is not None
    assert language not in found.encode(f"a {token} b").tolist()
    assert found.decode([*found.encode("hello"), language]) == "hello"


def test_legacy_nllb_tokenizer_puts_the_language_after_the_text(tmp_path):
    tokenizer_folders.nllb(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "legacy_behaviour": True}))
    for side, tokenizer in zip(("source", "target"), load(tmp_path), strict=True):
        for text, (language, *ids) in zip(texts_of("nllb"), EXPECTED["nllb"][side], strict=True):
            assert ids_with_special_tokens(tokenizer, text) == [*ids, language]


def test_extra_ids_of_t5_are_the_last_ones_and_count_down(tmp_path):
    tokenizer_folders.t5(tmp_path)
    found = load(tmp_path).source
    assert [found.special_id(f"<extra_id_{i}>") for i in (0, 99)] == [599, 500]


def test_pieces_that_the_vocabulary_lacks_are_unknown_and_have_no_id(tmp_path):
    tokenizer_folders.marian(tmp_path)
    found = load(tmp_path).source
    vocab = json.loads((tmp_path / "vocab.json").read_text())
    assert found.vocab_size == len(vocab)
    pieces = tokenizer_folders._pieces("unigram-rules")
    missing = [piece for piece in pieces if piece.isascii() and piece not in vocab]
    assert vocab["<unk>"] in found.encode(missing[0]).tolist()
    every = found.encode(" ".join(pieces))
    assert every.max() < len(vocab)


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


def test_folder_without_a_tokenizer_has_none(tmp_path):
    assert load_tokenizers(tmp_path, "llama") is None


def test_tokenizer_json_comes_first_and_a_file_that_cannot_be_read_last(tmp_path):
    tokenizer_folders.llama(tmp_path)
    expected = load(tmp_path).source.encode("hello").tolist()
    (tmp_path / "spiece.model").write_bytes(b"\x0a\x7f")
    assert load(tmp_path).source.encode("hello").tolist() == expected
    (tmp_path / "tokenizer.model").write_bytes(b"a tiktoken file")
    with pytest.raises(CheckpointError, match="spiece.model is not a SentencePiece model"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "change", "why"),
    [
        ("t5", "tokenizer_config.json", {"extra_ids": -1}, "extra_ids .* must be in 0"),
        ("t5", "tokenizer_config.json", {"eos_token": 3, "src_lang": 7}, "src_lang .* text, got 7"),
        ("nllb", "tokenizer_config.json", {"src_lang": "xx"}, "'xx', which surrounds texts, is"),
        ("llama", "tokenizer_config.json", {"add_bos_token": "yes"}, "add_bos_token .* got 'yes'"),
        ("llama", "added_tokens.json", {"<x>": 777}, "'<x>' has the id 777, but the vocabulary"),
        ("llama", "added_tokens.json", {"<x>": "y"}, "id of an added token is 'y'"),
        ("qwen2", "tokenizer_config.json", {"added_tokens_decoder": {"1": 5}}, "token is 5"),
        ("qwen2", "tokenizer_config.json", {"added_tokens_decoder": 5}, "is not an object"),
        ("gpt2", "tokenizer_config.json", {"tokenizer_class": "XTokenizer"}, "for a XTokenizer"),
        ("mbart", "tokenizer_config.json", {"tokenizer_class": "XTokenizer"}, "for a XTokenizer"),
        ("m2m-100", "tokenizer_config.json", {"language_codes": "x"}, "language_codes must be"),
        ("gpt2", "vocab.json", {"zzzz": 5}, "ids 0 .. 320, each once"),
        ("marian", "vocab.json", {"</s>": 1}, "ids 0 .. 432, each once"),
    ],
)
def test_damaged_settings_are_one_clear_error(name, file, change, why, tmp_path):
    FOLDERS[name](tmp_path)
    path = tmp_path / file
    values = json.loads(path.read_text())
    if file == "added_tokens.json":
        values = {}
    path.write_text(json.dumps(values | change))
    with pytest.raises(CheckpointError, match=why):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "content", "why"),
    [
        ("gpt2", "merges.txt", "#version: 0.2\na b c\n", "line 2: a merge must be two tokens"),
        ("gpt2", "merges.txt", "a zzz\n", "line 1: a merge must be two tokens"),
        ("bert", "vocab.txt", "a\nb\n", "lacks the special token '\\[UNK\\]'"),
        ("bert", "vocab.txt", b"\xff", "is not UTF-8"),
    ],
)
def test_damaged_vocabularies_are_one_clear_error(name, file, content, why, tmp_path):
    FOLDERS[name](tmp_path)
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / file).write_bytes(data)
    with pytest.raises(CheckpointError, match=why):
        load(tmp_path)


def test_model_of_another_kind_is_refused(tmp_path):
    tokenizer_folders.mbart(tmp_path)
    (tmp_path / "sentencepiece.bpe.model").write_bytes((FOLDER / "t5.model").read_bytes())
    with pytest.raises(CheckpointError, match="must begin with the pieces <unk>, <s> and </s>"):
        load(tmp_path)


def test_sentencepiece_file_of_an_unknown_kind_is_refused_by_its_name(tmp_path):
    tokenizer_folders.xlm_roberta(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(CheckpointError, match="is for a CamembertTokenizer, which is not"):
        load_tokenizers(tmp_path, "camembert")
    assert load_tokenizers(tmp_path, "xlm-roberta") is not None
