"""Words that are new to a translator."""

import pytest

from jaxformer import text
from jaxformer.errors import CheckpointError
from jaxformer.runs.data import words
from jaxformer.runs.data.words import KnownWords

BYTES = text.byte_tokenizer()


@pytest.mark.parametrize(
    ("sources", "sentences", "new"),
    [
        # Each once, in their order; case and punctuation are what the model reads, too.
        (["my name is s07"], ["My name is ann.", "ann is s07 ."], ["My", "ann", "."]),
        (["it's", "ನನ್ನ ಹೆಸರು"], ["ನನ್ನ it's", "ಹೆಸರ"], ["ಹೆಸರ"]),
        # Without spaces between words, only a character can be new.
        (["我喜欢茶", "タイ"], ["我喜欢咖啡", "イタ", "รัก"], ["咖", "啡", "ร", "ั", "ก"]),
        ([], ["", " "], []),
    ],
)
def test_words_are_new_that_no_source_has(sources, sentences, new):
    known = KnownWords.collect(sources, BYTES)
    assert known.find_new(sentences, BYTES) == new
    assert known.find_new(sources, BYTES) == []


def test_word_without_a_token_is_new_to_a_word_tokenizer():
    sources = ["tea tea 咖啡 milk", "tea 咖啡"]
    tokenizer = text.train_word(sources, vocab_size=4)
    known = KnownWords.collect(sources, tokenizer)
    assert known.find_new(["milk tea 咖啡 咖"], tokenizer) == ["milk", "咖"]


def test_too_many_words_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(words, "_MOST", 3)
    assert KnownWords.collect(["a b", "a c"], BYTES).find_new(["d"], BYTES) == ["d"]
    known = KnownWords.collect(["a b", "c d"], BYTES)
    known.save(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert known == KnownWords.load(tmp_path) and known.find_new(["e"], BYTES) == []


def test_words_of_two_runs_are_known_where_both_are():
    one, two = (KnownWords.collect([word], BYTES) for word in ("one", "two"))
    assert one.union(two).find_new(["three two one"], BYTES) == ["three"]
    assert one.union(KnownWords()) == KnownWords().union(two) == KnownWords()


def test_words_are_saved_in_the_run_folder(tmp_path):
    known = KnownWords.collect(["zwei eins"], BYTES)
    known.save(tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.read_text(encoding="utf-8") == '[\n"eins",\n"zwei"\n]\n'
    assert KnownWords.load(tmp_path) == known
    path.write_text("[", encoding="utf-8")
    with pytest.raises(CheckpointError, match="source_words.json is damaged"):
        KnownWords.load(tmp_path)
