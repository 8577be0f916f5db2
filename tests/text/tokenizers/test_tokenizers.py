import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer.errors import DataError
from jaxformer.text import (
    Tokenizer,
    byte_tokenizer,
    train_bpe,
    train_character,
    train_word,
    with_special_tokens,
)

TEXT = "Work, for the night (it is dark) is coming: we'll work 37 hours.\n\n\tÜber — 東京 😀\n"
# Texts that are hard on a tokenizer beside what Hypothesis finds by itself.
TEXTS = st.text() | st.lists(
    st.sampled_from(
        [
            "<|endoftext|>",
            "<|unknown|>",
            "<|mask|>",
            "\ufffd",
            "é",
            "😀",
            "\x00",
            "\r\n",
            "  ",
            "'ll",
        ]
    )
).map("".join)


def with_mask(tokenizer):
    return with_special_tokens(tokenizer, ["<|mask|>"])


def reloaded(tokenizer):
    return Tokenizer.from_json(tokenizer.to_json())


BYTE, BPE = byte_tokenizer(), train_bpe([TEXT * 3], vocab_size=307)
CHARACTER, WORD = train_character([TEXT]), train_word([TEXT])
MASKED = with_mask(BPE)
LOSSLESS = {
    "byte": BYTE,
    "bpe": BPE,
    "bpe with mask": MASKED,
}
ALL = {
    "byte": BYTE,
    "bpe": BPE,
    "character": CHARACTER,
    "word": WORD,
    "bpe with mask": MASKED,
    "word with mask": with_mask(WORD),
    "character with mask": with_mask(CHARACTER),
}


@pytest.mark.parametrize("tokenizer", LOSSLESS.values(), ids=LOSSLESS)
@settings(deadline=None, max_examples=50)
@given(text=TEXTS)
def test_lossless_tokenizer_gives_back_any_text(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.end_of_text not in ids
    assert tokenizer.mask not in ids


@settings(deadline=None, max_examples=50)
@given(text=st.text(alphabet=TEXT))
def test_character_tokenizer_gives_back_any_text_of_its_characters(text):
    for tokenizer in (CHARACTER, reloaded(CHARACTER)):
        assert tokenizer.encode(text).size == len(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("tokenizer", ALL.values(), ids=ALL)
def test_encode_gives_int32_even_for_no_text(tokenizer):
    assert tokenizer.encode("").shape == (0,)
    assert tokenizer.encode("").dtype == tokenizer.encode("work").dtype == np.int32


@pytest.mark.parametrize("tokenizer", ALL.values(), ids=ALL)
def test_decode_skips_the_end_of_text_and_takes_any_sequence(tokenizer):
    ids = tokenizer.encode("work").tolist()
    ended = [tokenizer.end_of_text, *ids, tokenizer.end_of_text]
    for sequence in (ended, tuple(ended), np.array(ended, np.uint16)):
        assert tokenizer.decode(sequence) == "work"
    assert tokenizer.decode([]) == ""


@pytest.mark.parametrize("tokenizer", ALL.values(), ids=ALL)
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_stream_equals_decode_however_the_ids_are_cut(tokenizer, data):
    # Any ids, so the bytes are mostly no UTF-8; and those of text, so that they sometimes are.
    text_ids = tokenizer.encode("work" if tokenizer.unknown == 0 else TEXT[-9:]).tolist()
    chunk = st.lists(
        st.integers(0, tokenizer.vocab_size - 1) | st.sampled_from(text_ids), max_size=5
    )
    chunks = data.draw(st.lists(chunk | st.just(text_ids), max_size=20))
    stream = tokenizer.stream()
    shown = ""
    for i, ids in enumerate(chunks):
        shown += stream.push(ids)
        assert tokenizer.decode(sum(chunks[: i + 1], [])).startswith(shown)
    shown += stream.flush()
    assert shown == tokenizer.decode(sum(chunks, []))
    assert stream.flush() == ""


def test_stream_holds_back_only_an_unfinished_character():
    stream = BYTE.stream()
    pushed = [stream.push([byte]) for byte in "a😀é".encode()]
    assert pushed == ["a", "", "", "", "😀", "", "é"]
    assert [stream.push([0xF0]), stream.push([0x41]), stream.flush()] == ["", "\ufffdA", ""]
    assert [stream.push([0xC3]), stream.push([256] * 11), stream.push([0xA9])] == ["", "", "é"]


def test_stream_decodes_a_bounded_number_of_ids_at_a_time(monkeypatch):
    stream, decode, sizes = BYTE.stream(), Tokenizer.decode, []
    monkeypatch.setattr(
        Tokenizer, "decode", lambda self, i: sizes.append(len(i)) or decode(self, i)
    )
    for _ in range(101):
        stream.push([0xFF])  # Never a character: the hardest to let go of.
    assert max(sizes) < 11


@pytest.mark.parametrize("tokenizer", ALL.values(), ids=ALL)
def test_saved_tokenizer_loads_as_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    for name in ("vocab_size", "end_of_text", "unknown", "mask"):
        assert getattr(loaded, name) == getattr(tokenizer, name)
    assert loaded.encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()
    assert loaded.to_json() == tokenizer.to_json()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a tokenizer in JSON"),
        (b'{"model": 1}', "not a tokenizer in JSON"),
        (b'{"model": ' * 100_000, "not a tokenizer in JSON"),
        (b"\xff", "codec can't decode"),
        (None, "cannot be read: No such file"),
    ],
)
def test_file_that_is_no_tokenizer_is_named(tmp_path, content, reason):
    path = tmp_path / "broken.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=f"broken.json: .*{reason}"):
        Tokenizer.load(path)


@pytest.mark.parametrize("tokenizer", ALL.values(), ids=ALL)
def test_lone_surrogate_is_named_with_its_index(tokenizer):
    with pytest.raises(DataError, match=r"lone surrogate '\\ud800' at index 3 of a text; read"):
        tokenizer.encode("for\ud800")


@pytest.mark.parametrize(
    "tokenizer",
    [CHARACTER, reloaded(CHARACTER), with_mask(CHARACTER)],
    ids=["new", "reloaded", "with mask"],
)
def test_unknown_character_is_named_with_its_index(tokenizer):
    rule = rf"among the {len(tokenizer.words)} of the vocabulary, got 'é' \(U\+00E9\) at index 5"
    with pytest.raises(DataError, match=rule):
        tokenizer.encode("work éñ")
    with pytest.raises(DataError, match=rule):
        tokenizer.encode_with_special_tokens("<|endoftext|>work éñ")


@pytest.mark.parametrize("tokenizer", [WORD, CHARACTER, with_mask(WORD)])
def test_words_are_the_ordinary_tokens_by_id(tokenizer):
    special = {tokenizer.unknown, tokenizer.end_of_text, tokenizer.mask}
    ids = [i for i in range(tokenizer.vocab_size) if i not in special]
    assert list(tokenizer.words.items()) == [(tokenizer.decode([i]), i) for i in ids]


@pytest.mark.parametrize("bad", [-1, 257])
def test_decode_refuses_ids_outside_the_vocabulary(bad):
    with pytest.raises(DataError, match=f"less than vocab_size=257, got {bad}; decode with"):
        BYTE.decode([5, bad])
    with pytest.raises(DataError, match=f"got {bad}"):
        BYTE.stream().push([bad])


@pytest.mark.parametrize("train", [lambda _: byte_tokenizer(), lambda text: train_bpe([text], 300)])
def test_token_texts_hold_every_byte_of_the_text(train):
    text = f"{TEXT} ನಮಸ್ಕಾರ ನನ್ನ \x00\xa0¡Ā"
    tokenizer = train(text * 2)
    texts = tokenizer.token_texts(tokenizer.encode(text))
    shown = re.compile(r"(\\x[0-9a-f]{2})")  # a byte that is a part of a character
    content = b"".join(
        bytes.fromhex(part[2:]) if shown.fullmatch(part) else part.encode()
        for token in texts
        for part in shown.split(token)
    )
    assert content == text.encode()


def test_token_texts_name_special_tokens_and_keep_those_of_words():
    tokenizer = with_mask(train_word(["to be"]))
    ids = [tokenizer.end_of_text, *tokenizer.encode("be not"), tokenizer.mask]
    assert tokenizer.token_texts(ids) == ["<|endoftext|>", "be", "<|unknown|>", "<|mask|>"]
    assert train_character(["é "]).token_texts([0, 1]) == [" ", "é"]


def test_token_texts_show_added_tokens_as_they_are():
    """Those that a file of another tool has may hold letters that stand for no byte."""
    other = json.loads(byte_tokenizer().to_json())
    other["added_tokens"].append({**other["added_tokens"][0], "id": 257, "content": "a €",
                                  "special": False})  # fmt: skip
    tokenizer = Tokenizer.from_json(json.dumps(other))
    assert tokenizer.token_texts([257, 97]) == ["a €", "a"]


def test_merges_do_not_depend_on_how_many_more_are_asked_for():
    text = "to be or not to be, that is the question"
    tokenizer = train_bpe([text] * 2, 2**31 - 1)
    assert tokenizer.to_json() == train_bpe([text] * 2, 400).to_json()
    # All are made: each word occurs twice, so that it becomes one token.
    tokens = [tokenizer.decode([token_id]) for token_id in tokenizer.encode(text)]
    assert tokens == re.findall(r" ?\w+|,", text)


def test_byte_order_mark_of_a_tokenizer_file_is_left_out(tmp_path):
    content = byte_tokenizer().to_json()
    (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8-sig")
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode("a").tolist() == [97]
