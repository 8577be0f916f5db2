import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer.errors import DataError
from jaxformer.text import Tokenizer, byte_tokenizer, train_bpe, train_character, train_word
from tests.text.tokenizers.test_tokenizers import with_mask

TEXT = "b a a b c, d. (e) d"
TRAINERS = {
    "character": train_character,
    "word": train_word,
    "bpe": lambda texts: train_bpe(texts, vocab_size=307),
}


def words_by_id(tokenizer):
    vocab = json.loads(tokenizer.to_json())["model"]["vocab"]
    return sorted(vocab, key=vocab.get)


def test_character_ids_are_the_sorted_characters_then_the_end_of_text():
    tokenizer = train_character(["été", "a€"])
    assert words_by_id(tokenizer) == ["a", "t", "é", "€"]
    assert (tokenizer.vocab_size, tokenizer.end_of_text, tokenizer.unknown) == (5, 4, None)


@settings(deadline=None, max_examples=50)
@given(text=st.text())
def test_byte_ids_are_the_bytes(text):
    assert byte_tokenizer().encode(text).tolist() == list(text.encode())


def test_word_ids_are_by_frequency_then_alphabet():
    tokenizer = train_word([TEXT])
    assert words_by_id(tokenizer) == ["<|unknown|>", *"abd", *"(),.ce"]
    assert (tokenizer.vocab_size, tokenizer.end_of_text, tokenizer.unknown) == (11, 10, 0)


def test_word_vocab_size_keeps_the_most_frequent_words():
    tokenizer = train_word([TEXT], vocab_size=5)
    assert words_by_id(tokenizer) == ["<|unknown|>", *"abd"]
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (5, 4)
    assert tokenizer.encode("a c").tolist() == [1, 0]
    assert tokenizer.decode([1, 0]) == "a <|unknown|>"


@pytest.mark.parametrize(
    "text, tokens",
    [
        ("work, for it.", ["work", ",", "for", "it", "."]),
        ("don't stop...", ["don't", "stop", ".", ".", "."]),
        ("(a_1 [b]) 3%", ["(", "a_1", "[", "b", "]", ")", "3", "%"]),
        ("été\n\tdu 東京!", ["été", "du", "東京", "!"]),
    ],
)
def test_word_tokenizer_splits_and_joins_punctuation(text, tokens):
    tokenizer = train_word([text])
    ids = tokenizer.encode(text)
    assert [tokenizer.decode([token_id]) for token_id in ids] == tokens
    assert tokenizer.decode(ids) == " ".join(text.split())


def test_bpe_merges_frequent_pairs_within_words_up_to_vocab_size():
    texts = ["low lower lowest slow " * 5]
    assert train_bpe(texts, vocab_size=257).encode("low").size == 3
    small, large = train_bpe(texts, vocab_size=259), train_bpe(texts, vocab_size=997)
    assert (small.vocab_size, small.end_of_text) == (259, 258)
    assert small.encode(" low").size == 2
    assert large.vocab_size < 290
    assert large.encode(" low lowest").size == 2


def test_bpe_learns_nothing_from_pairs_that_occur_once():
    assert train_bpe(["once, by"], vocab_size=307).vocab_size == 257


@pytest.mark.parametrize("train", TRAINERS.values(), ids=TRAINERS)
@pytest.mark.parametrize(
    "texts, rule",
    [
        ([], "needs text to train on, got 0 texts"),
        (["", " \n"], "needs text to train on, got 2 texts"),
        (["a\udc00"], r"lone surrogate '\\udc00' at index 1"),
        ("abc", "must be a list of strings, got 'abc'"),
    ],
)
def test_training_refuses_what_is_no_text(train, texts, rule):
    with pytest.raises(DataError, match=rule):
        train(texts)


@pytest.mark.parametrize("train", TRAINERS.values(), ids=TRAINERS)
def test_mask_is_one_more_token_which_no_text_has(train):
    tokenizer = train([TEXT + "<|mask|>"])
    before = tokenizer.to_json()
    masked = with_mask(tokenizer)
    assert (masked.mask, masked.vocab_size) == (tokenizer.vocab_size, tokenizer.vocab_size + 1)
    assert (masked.end_of_text, masked.unknown) == (tokenizer.end_of_text, tokenizer.unknown)
    assert Tokenizer.from_json(masked.to_json()).mask == masked.mask
    assert tokenizer.mask is None and tokenizer.to_json() == before
    ids = masked.encode("a<|mask|>b").tolist()
    assert ids == tokenizer.encode("a<|mask|>b").tolist()
    assert masked.decode([masked.mask, *ids, masked.mask]) == tokenizer.decode(ids)
    assert masked.byte_length(masked.mask) == 0
    stream = masked.stream()
    assert stream.push([masked.mask]) + stream.push(ids) + stream.flush() == tokenizer.decode(ids)


def test_vocabulary_too_small_is_refused():
    with pytest.raises(DataError, match="at least 257, .* got 256; use a character tokenizer"):
        train_bpe([TEXT], vocab_size=256)
    with pytest.raises(DataError, match="at least 3, .* got 2; leave it out"):
        train_word([TEXT], vocab_size=2)
