"""What texts are read with: special tokens as text, and the rules of SentencePiece."""

import pytest
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from jaxformer.errors import DataError
from jaxformer.interop.tokenizers.sentencepiece_files import read_sentencepiece
from jaxformer.text import Tokenizer
from jaxformer.text.tokenizers.charsmaps import Charsmap
from jaxformer.text.tokenizers.reading import LONGEST_MATCH
from tests.interop.sentencepiece_golden import FOLDER, RULES


@pytest.fixture(scope="module")
def rules():
    return read_sentencepiece(FOLDER / "unigram-rules.model").charsmap


def unigram(normalizer=None):
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁", -1.0), *((c, -2.0) for c in "</s>abé")]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.add_special_tokens([AddedToken("</s>"), AddedToken("<unk>")])
    return Tokenizer(tokenizer)


def test_spelling_of_a_special_token_in_a_unigram_vocabulary_is_text():
    tokenizer = unigram()
    ids = tokenizer.encode("a</s>b").tolist()
    assert tokenizer.special_id("</s>") == 1
    assert tokenizer.token_texts(ids) == [" ", "a", "<", "/", "s", ">", "b"]


def test_rules_are_applied_longest_first(rules):
    charsmap = Charsmap(rules)
    for source, target in RULES:
        assert charsmap.apply(f"x{source}x{source}") == f"x{target}x{target}"
    assert charsmap.apply("e\u0323\u0301 e\u0301\u0323") == "e\u0323\u0301 ẹ́"
    assert charsmap.apply("plain\n漢") == "plain 漢"


def test_rules_of_the_library_stay_what_they_are_without_the_mark(rules):
    """A tokenizer.json means what it means to the library, which loses the accent here."""
    library = normalizers.Precompiled(rules)
    mark = normalizers.Replace(Regex("(?!)"), LONGEST_MATCH["content"])
    text = "\uff21\u0301b"
    theirs = unigram(library)
    exact = unigram(normalizers.Sequence([mark, library]))
    assert theirs.token_texts(theirs.encode(text)) == [" ", "a", "b"]
    assert exact.token_texts(exact.encode(text)) == [" ", "a", "<unk>", "b"]
    again = Tokenizer.from_json(exact.to_json())
    assert again.encode(text).tolist() == exact.encode(text).tolist()


@pytest.mark.parametrize("cut", [4, 400, -1])
def test_damaged_rules_are_an_error(rules, cut):
    with pytest.raises(DataError, match="the normalization rules are damaged"):
        Charsmap(rules[:cut]).apply("".join(source for source, _ in RULES))


def test_rules_of_a_stranger_are_checked_when_they_are_applied(rules):
    data = bytearray(rules)
    data[4:8] = b"\xff\xff\xff\x7f"  # the root's children are far outside
    assert Charsmap(bytes(data)).apply("A\u0301") == "A\u0301"
