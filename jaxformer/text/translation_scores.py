"""Scores of translations against references: BLEU, chrF and exact matches."""

import dataclasses
import importlib.util
import re
from collections.abc import Sequence

from jaxformer.errors import ConfigError, DataError
from jaxformer.text.tables.table import require_same_length

# Scripts that 13a cannot split into words: their characters, the tokenizer of sacrebleu for them,
# and the package that it needs. Japanese has Chinese characters, too, so kana come first.
_SCRIPTS = (
    (re.compile("[\u3040-\u30ff]"), "ja-mecab", "MeCab"),
    (re.compile("[\uac00-\ud7af\u1100-\u11ff]"), "ko-mecab", "mecab_ko"),
    (re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"), "zh", None),
    (re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"), "char", None),  # Thai to Khmer
)
_SHARE = 0.1  # of the characters, from which on a script decides


@dataclasses.dataclass(frozen=True)
class TranslationScores:
    """Corpus scores of translations, with the signatures that make them reproducible.

    Args:
        bleu: corpus BLEU, from 0 to 100.
        chrf: corpus chrF, from 0 to 100.
        bleu_signature: how sacrebleu computed BLEU, its version included.
        chrf_signature: how sacrebleu computed chrF, its version included.

    Example:
        >>> print(TranslationScores(38.21, 61.04, "tok:13a", "nc:6"))
        BLEU 38.2 (tok:13a), chrF 61.0 (nc:6)
    """

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str

    def __str__(self) -> str:
        return (
            f"BLEU {self.bleu:.1f} ({self.bleu_signature}), "
            f"chrF {self.chrf:.1f} ({self.chrf_signature})"
        )


def exact_matches(translations: Sequence[str], references: Sequence[str]) -> float:
    """Share of the translations that equal their reference exactly.

    Args:
        translations: at least one translation.
        references: reference of each translation.

    Returns:
        The share, in [0, 1].

    Example:
        >>> exact_matches(["No.", "no"], ["no", "no"])
        0.5
    """
    require_same_length(translations=translations, references=references)
    return sum(map(str.__eq__, translations, references)) / len(references)


def translation_scores(translations: Sequence[str], references: Sequence[str]) -> TranslationScores:
    """Scores translations with sacrebleu, so that the scores are comparable to published ones.

    BLEU is the geometric mean of the n-gram precisions for 1 to 4 words, times a penalty if the
    translations are shorter than the references. chrF2 is an F-score of character n-grams (1 to 6,
    without spaces) in which recall counts twice as much as precision. Both are case-sensitive, and
    computed over the whole corpus, not averaged over sentences.

    BLEU needs words. The tokenizer 13a finds them by spaces and Latin punctuation. References in
    other scripts choose another: "zh" for Chinese; "ja-mecab" and "ko-mecab" for Japanese and
    Korean, if `pip install "sacrebleu[ja,ko]"` has installed them, and else "char", single
    characters, as for Thai, Lao, Burmese and Khmer. The signature names it.

    Args:
        translations: plain, untokenized text; single translations may be empty.
        references: the correct translation of each, in the same order.

    Returns:
        The scores, and the signatures to publish with them.

    Raises:
        DataError: there are no translations, or their number differs from the references; a
            reference has no text; or an argument is a single string.
        ConfigError: sacrebleu is missing.

    References:
        Papineni, Roukos, Ward, Zhu, BLEU: a Method for Automatic Evaluation of Machine
        Translation, 2002; Popović, chrF: character n-gram F-score for automatic MT evaluation,
        2015; Post, A Call for Clarity in Reporting BLEU Scores, 2018.

    Example:
        >>> references = ["Two dogs run over the green grass.", "A man is asleep."]
        >>> scores = translation_scores(["Two dogs run on the grass.", references[1]], references)
        >>> f"{scores.bleu:.1f}", f"{scores.chrf:.1f}"
        ('52.6', '70.1')
    """
    for name, texts in (("translations", translations), ("references", references)):
        if isinstance(texts, str):
            raise DataError(
                f"{name} must be a sequence of sentences, got the single string {texts[:20]!r}; "
                "put it in a list"
            )
    require_same_length(translations=translations, references=references)
    if not translations:
        raise DataError("scores need at least one translation, got none; translate a sentence")
    blank = [index for index, reference in enumerate(references) if not reference.strip()]
    if blank:
        # sacrebleu would silently exclude these translations from chrF.
        raise DataError(
            f"every reference must have text, got {len(blank)} without, the first at index "
            f"{blank[0]}; leave out these pairs"
        )
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError as error:
        raise ConfigError(
            f'scores of translations need sacrebleu, got "{error}"; pip install "jaxformer[eval]"'
        ) from error
    bleu, chrf = BLEU(tokenize=_tokenizer_of(references)), CHRF(beta=2)
    hypotheses, only_references = list(translations), [list(references)]
    # Signatures exist only after a corpus was scored.
    bleu_score = bleu.corpus_score(hypotheses, only_references).score
    chrf_score = chrf.corpus_score(hypotheses, only_references).score
    return TranslationScores(
        bleu=bleu_score,
        chrf=chrf_score,
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )


def _tokenizer_of(references: Sequence[str]) -> str:
    """Name of sacrebleu's tokenizer for the script of the references."""
    text = "".join(references)
    for characters, tokenizer, package in _SCRIPTS:
        if len(characters.findall(text)) >= _SHARE * len(text):
            has_package = package is None or importlib.util.find_spec(package) is not None
            return tokenizer if has_package else "char"
    return "13a"
