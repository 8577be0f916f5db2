import sys

import pytest
import sacrebleu

from jaxformer.errors import ConfigError, DataError
from jaxformer.text.translation_scores import exact_matches, translation_scores

# Of unequal lengths, with a mistake in the case of a letter, in a comma and in the order.
TRANSLATIONS = [
    "A man, in a Blue shirt, stands on a ladder and cleans windows.",
    "Two dogs play with the the ball.",
    "three children sit down on a bench",
    "A woman sells fruit at the market.",
]
REFERENCES = [
    "A man in a blue shirt is standing on a ladder, cleaning a window.",
    "Two dogs play with a ball in the deep snow.",
    "Three children sit on a bench.",
    "A woman sells fruit at the market.",
]


def test_scores_are_those_of_sacrebleu_and_have_its_signatures():
    scores = translation_scores(tuple(TRANSLATIONS), REFERENCES)
    assert scores.bleu == sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES]).score > 20
    assert scores.chrf == sacrebleu.corpus_chrf(TRANSLATIONS, [REFERENCES]).score > 20
    version = "version:" + sys.modules["sacrebleu"].__version__
    assert scores.bleu_signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}"
    assert scores.chrf_signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version}"


def test_exact_counts_no_translation_that_differs_in_a_space_or_in_case():
    assert exact_matches(["No.", "no", "no ", "no"], ["no", "no", "no", "No"]) == 0.25


def test_scores_are_of_as_many_translations_as_references():
    for score in (translation_scores, exact_matches):
        with pytest.raises(DataError, match="got 2 translations, 1 references; align them"):
            score(["a", "b"], ["a"])


def test_scores_without_sacrebleu_say_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ConfigError, match=r'sacrebleu.*; pip install "jaxformer\[eval\]"'):
        translation_scores(["a"], ["a"])


@pytest.mark.parametrize(
    ("reference", "translation", "tokenizer"),
    [
        ("我喜欢在公园里散步。", "我喜欢在花园里散步。", "zh"),
        ("私は公園を散歩するのが好きです。", "私は庭を散歩するのが好きです。", "char"),
        ("저는 공원에서 산책하는 것을 좋아합니다.", "저는 정원에서 산책하는 것을 합니다.", "char"),
        ("ฉันชอบเดินเล่นในสวนสาธารณะ", "ฉันชอบเดินเล่นในสวน", "char"),
        ("Я люблю гулять в парке.", "Я люблю гулять в парке.", "13a"),
        ("She said 你好 to everyone in the park.", "She said 你好 to all in the park.", "13a"),
    ],
)  # fmt: skip
def test_words_of_bleu_are_those_of_the_script(reference, translation, tokenizer):
    scores = translation_scores([translation], [reference])
    expected = sacrebleu.corpus_bleu([translation], [[reference]], tokenize=tokenizer).score
    assert f"tok:{tokenizer}|" in scores.bleu_signature and scores.bleu == expected > 30
