import collections
import math
import re
import sys

import pytest
import sacrebleu

from jaxformer.errors import ConfigError, DataError
from jaxformer.text import exact_matches, translation_scores
from jaxformer.text.translation_scores import _tokenizer_of

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


def words(sentence):
    return re.findall(r"\w+|[^\w\s]", sentence)


def characters(sentence):
    return sentence.replace(" ", "")


def runs(items, length):
    return collections.Counter(tuple(items[i : i + length]) for i in range(len(items) - length + 1))


def matches(translations, references, split, length):
    """Runs that stand in both sides, those of the translations, and those of the references."""
    pairs = [
        (runs(split(translation), length), runs(split(reference), length))
        for translation, reference in zip(translations, references, strict=True)
    ]
    both = sum((one & other).total() for one, other in pairs)
    return both, sum(one.total() for one, _ in pairs), sum(other.total() for _, other in pairs)


def bleu(translations, references):
    counts = [matches(translations, references, words, length) for length in (1, 2, 3, 4)]
    precision = math.prod(both / got for both, got, _ in counts) ** (1 / 4)
    _, got, wanted = counts[0]
    return 100 * precision * min(1.0, math.exp(1 - wanted / got))


def chrf(translations, references):
    counts = [matches(translations, references, characters, length) for length in range(1, 7)]
    precision = sum(both / got for both, got, _ in counts) / 6
    recall = sum(both / wanted for both, _, wanted in counts) / 6
    return 100 * 5 * precision * recall / (4 * precision + recall)


@pytest.mark.parametrize(
    ("translations", "references"), [(TRANSLATIONS, REFERENCES), (REFERENCES, TRANSLATIONS)]
)
def test_scores_equal_the_published_formulas(translations, references):
    scores = translation_scores(translations, references)
    assert scores.bleu == pytest.approx(bleu(translations, references), rel=1e-12)
    assert scores.chrf == pytest.approx(chrf(translations, references), rel=1e-12)


def test_scores_of_the_references_themselves_are_full():
    scores = translation_scores(tuple(REFERENCES), REFERENCES)
    assert (scores.bleu, scores.chrf) == (pytest.approx(100), pytest.approx(100))


def test_scores_of_empty_translations_are_zero_and_one_of_them_lowers_all():
    nothing = translation_scores([""] * 4, REFERENCES)
    assert (nothing.bleu, nothing.chrf) == (0, 0)
    some = translation_scores(["", *REFERENCES[1:]], REFERENCES)
    assert 0 < some.bleu < 75 and 0 < some.chrf < 100


def test_exact_counts_no_translation_that_differs_in_a_space_or_in_case():
    assert exact_matches(["No.", "no", "no ", "no"], ["no", "no", "no", "No"]) == 0.25


def test_scores_print_with_their_signatures():
    scores = translation_scores(TRANSLATIONS, REFERENCES)
    version = "version:" + sys.modules["sacrebleu"].__version__
    assert scores.bleu_signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}"
    assert scores.chrf_signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version}"
    assert str(scores) == (
        f"BLEU {scores.bleu:.1f} ({scores.bleu_signature}), "
        f"chrF {scores.chrf:.1f} ({scores.chrf_signature})"
    )


@pytest.mark.parametrize(
    ("translations", "references", "message"),
    [
        (["a", "b"], ["a"], "got 2 translations, 1 references; align them"),
        ([], ["a"], "got 0 translations, 1 references; align them"),
        ([], [], "at least one translation, got none; translate"),
        (["a"] * 4, ["a", "", "b", " \n"], "got 2 without, the first at index 1; leave"),
        ("ja", ["y", "es"], "translations must be a sequence .* string 'ja'; put it in a list"),
        (["j", "a"], "no", "references must be a sequence .* string 'no'; put it in a list"),
    ],
)
def test_scores_refuse_what_cannot_be_compared(translations, references, message):
    with pytest.raises(DataError, match=message):
        translation_scores(translations, references)


def test_scores_without_sacrebleu_say_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ConfigError, match=r'sacrebleu.*; pip install "jaxformer\[eval\]"'):
        translation_scores(["a"], ["a"])


@pytest.mark.parametrize(
    ("reference", "translation", "tokenizer"),
    [
        ("我喜欢在公园里散步。", "我喜欢在花园里散步。", "zh"),
        ("私は公園を散歩するのが好きです。", "私は庭を散歩するのが好きです。", "char"),
        (
            "저는 공원에서 산책하는 것을 좋아합니다.",
            "저는 정원에서 산책하는 것을 좋아합니다.",
            "char",
        ),
        ("ฉันชอบเดินเล่นในสวนสาธารณะ", "ฉันชอบเดินเล่นในสวน", "char"),
        ("Я люблю гулять в парке.", "Я люблю гулять в парке.", "13a"),
        ("She said 你好 to everyone in the park.", "She said 你好 to all in the park.", "13a"),
    ],
)
def test_words_of_bleu_are_those_of_the_script(monkeypatch, reference, translation, tokenizer):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # without MeCab
    scores = translation_scores([translation], [reference])
    expected = sacrebleu.corpus_bleu([translation], [[reference]], tokenize=tokenizer).score
    assert f"tok:{tokenizer}|" in scores.bleu_signature and scores.bleu == expected > 30
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with_packages = {"ja": "ja-mecab", "ko": "ko-mecab"}
    language = "ja" if "公園" in reference else "ko" if "공원" in reference else ""
    expected = with_packages.get(language, tokenizer)
    assert _tokenizer_of([reference]) == expected
