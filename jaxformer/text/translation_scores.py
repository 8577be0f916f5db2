"""Scores of translations against references: BLEU, chrF and exact matches."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from jaxformer.errors import ConfigError
from jaxformer.text.tables.table import require_same_length

# Scripts that 13a cannot split into words. Japanese has Chinese characters beside its kana.
_CHINESE = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_OTHER_SCRIPTS = re.compile(  # kana, Korean, and the scripts from Thai to Khmer
    "[\u3040-\u30ff\uac00-\ud7af\u1100-\u11ff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
)
_SHARE = 0.1  # of the characters, from which on a script decides


class TranslationScores(NamedTuple):
    """Corpus BLEU and chrF, from 0 to 100, with sacrebleu's signatures."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def exact_matches(translations: Sequence[str], references: Sequence[str]) -> float:
    """Share of the translations that equal their reference exactly."""
    require_same_length(translations=translations, references=references)
    return sum(map(str.__eq__, translations, references)) / len(references)


def translation_scores(translations: Sequence[str], references: Sequence[str]) -> TranslationScores:
    """Scores plain text with sacrebleu, so that the scores are comparable to published ones.

    BLEU needs words. The tokenizer 13a finds them by spaces and Latin punctuation. References in
    other scripts choose "zh" for Chinese, and single characters for Japanese, Korean, Thai, Lao,
    Burmese and Khmer. The signature names it.

    References:
        Papineni, Roukos, Ward, Zhu, BLEU: a Method for Automatic Evaluation of Machine
        Translation, 2002; Popović, chrF: character n-gram F-score for automatic MT evaluation,
        2015; Post, A Call for Clarity in Reporting BLEU Scores, 2018.
    """
    require_same_length(translations=translations, references=references)
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
    signatures = str(bleu.get_signature()), str(chrf.get_signature())
    return TranslationScores(bleu_score, chrf_score, *signatures)


def _tokenizer_of(references: Sequence[str]) -> str:
    """Name of sacrebleu's tokenizer for the script of the references."""
    text = "".join(references)
    least = _SHARE * len(text)
    if len(_OTHER_SCRIPTS.findall(text)) >= least:
        return "char"
    return "zh" if len(_CHINESE.findall(text)) >= least else "13a"
