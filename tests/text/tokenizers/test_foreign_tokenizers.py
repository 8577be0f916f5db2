"""Tokenizers that were made elsewhere encode and decode as the `tokenizers` library does."""

import json

import numpy as np
import pytest
import tokenizers

from jaxformer.errors import DataError
from jaxformer.text import Tokenizer, TokenRoles
from tests.text.foreign_tokenizers import END, FOREIGN, TEXT, foreign_json, library_tokenizer
from tests.text.tokenizers.test_tokenizers import with_mask

LOSSLESS = ["gpt2", "llama 2", "llama 3"]
every_tokenizer = pytest.mark.parametrize("name", FOREIGN)


def read(name):
    return Tokenizer.from_json(foreign_json(name))


@every_tokenizer
def test_long_text_has_the_tokens_that_the_library_gives_it(name):
    """Though some files ask for less of it."""
    ids = read(name).encode(TEXT * 4)
    assert ids.tolist() == library_tokenizer(name).encode(TEXT * 4, add_special_tokens=False).ids


METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
PREFIXES = {
    "t5": [
        METASPACE,
        METASPACE | {"prepend_scheme": "first"},
        {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]},
    ],
    "gpt2": [
        {"type": "ByteLevel", "add_prefix_space": add, "trim_offsets": True, "use_regex": True}
        for add in (True, False)
    ],
    "llama 2": [None],  # Prepend
}


@pytest.mark.parametrize(
    ("name", "words"),
    [(name, words) for name, all_words in PREFIXES.items() for words in all_words],
)
def test_text_in_two_pieces_has_the_tokens_of_the_whole(name, words):
    values = json.loads(foreign_json(name))
    values["pre_tokenizer"] = words
    library = tokenizers.Tokenizer.from_str(json.dumps(values))
    library.no_truncation()
    library.no_padding()
    tokenizer = Tokenizer.from_json(json.dumps(values))
    for first, second in [("The night", " is dark"), ("night", "; is"), ("Is it?", "\nNo one")]:
        ids = [tokenizer.encode(first), *tokenizer.encode_documents([second], is_start=False)]
        whole = library.encode(first + second, add_special_tokens=False).ids
        assert np.concatenate(ids).tolist() == whole


@every_tokenizer
@pytest.mark.parametrize("step", [1, 3])
def test_stream_decodes_as_all_at_once(name, step):
    tokenizer = read(name)
    ids = tokenizer.encode(TEXT + "漢字漢字漢字漢字 äöü 😀😀 end 漢")
    stream = tokenizer.stream()
    parts = [stream.push(ids[i : i + step]) for i in range(0, ids.size, step)]
    assert "".join(parts) + stream.flush() == tokenizer.decode(ids)


@pytest.mark.parametrize("name", LOSSLESS)
def test_tokens_have_as_many_bytes_as_their_text(name):
    tokenizer = read(name)
    ids = tokenizer.encode(TEXT)
    prefix = name == "llama 2"  # the space that it puts before a text
    assert tokenizer.decode(ids) == TEXT
    assert tokenizer.byte_lengths()[ids].sum() == len(TEXT.encode()) + prefix
    assert "".join(tokenizer.token_texts(tokenizer.encode("The night"))).strip() == "The night"
    assert tokenizer.has_leading_spaces


def test_bytes_of_words_whose_spaces_are_put_in_are_not_known():
    assert read("bert").byte_lengths() is None


@pytest.mark.parametrize("name", END)
def test_end_of_text_may_have_another_name(name):
    tokenizer = read(name)
    end = library_tokenizer(name).token_to_id(END[name])
    assert tokenizer.end_of_text is None
    ended = tokenizer.with_roles(TokenRoles(end_of_text=END[name]))
    masked = with_mask(ended)
    assert (ended.end_of_text, masked.end_of_text, masked.mask) == (end, end, ended.vocab_size)
    assert ended.special == tokenizer.special and ended.vocab_size == tokenizer.vocab_size
    np.testing.assert_array_equal(ended.encode(TEXT), tokenizer.encode(TEXT))
    assert ended.decode([end, *ended.encode("night")]).strip() == "night"


def test_ids_without_a_token_count():
    vocab = {"<unk>": 0, "a": 1, "b": 7}
    tokenizer = Tokenizer(tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab)))
    assert tokenizer.vocab_size == 8
    with pytest.raises(DataError, match=r"must get the last ids, from 8 on, got \[3\]"):
        with_mask(tokenizer)


def test_words_may_be_unknown_by_another_name():
    vocab = {"[UNK]": 0, "a": 1}
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="[UNK]"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = Tokenizer(library)
    assert (tokenizer.unknown, tokenizer.encode("a x").tolist()) == (0, [1, 0])
    assert tokenizer.special == {0} and tokenizer.words == {"a": 1}


def test_words_without_a_token_are_an_error_where_none_stands_for_them():
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"the": 0, "x": 1}))
    library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    assert Tokenizer(library).encode("the x").tolist() == [0, 1]
    with pytest.raises(Exception, match="UNK"):  # as the library says it
        Tokenizer(library).encode("the dog")


def unigram():
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁", -1.0), *((c, -2.0) for c in "</s>abé")]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 0))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    tokenizer.add_special_tokens([tokenizers.AddedToken("</s>"), tokenizers.AddedToken("<unk>")])
    return Tokenizer(tokenizer)


def test_spelling_of_a_special_token_in_a_unigram_vocabulary_is_text():
    tokenizer = unigram()
    ids = tokenizer.encode("a</s>b").tolist()
    assert tokenizer.special_id("</s>") == 1
    assert tokenizer.token_texts(ids) == [" ", "a", "<", "/", "s", ">", "b"]


def test_name_of_the_end_of_text_among_words_is_text():
    library = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"<unk>": 0, "a": 1, "</s>": 2}, "<unk>")
    )
    library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = Tokenizer(library, TokenRoles(end_of_text="</s>"))
    assert (tokenizer.end_of_text, tokenizer.encode("a </s> a").tolist()) == (2, [1, 0, 1])
