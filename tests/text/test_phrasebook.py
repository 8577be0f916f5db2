import re
import unicodedata
from collections import Counter

from jaxformer.text import load_phrasebook

TRAINING, VALIDATION = load_phrasebook()
ROWS = TRAINING + VALIDATION


def sentences_per_word(phrases):
    return Counter(
        word for phrase in phrases for word in {*phrase.english.split(), *phrase.kannada.split()}
    )


def test_each_sentence_has_one_translation_and_stands_once_in_either_language():
    for side in ("english", "kannada"):
        counts = Counter(getattr(phrase, side) for phrase in ROWS)
        assert [sentence for sentence, count in counts.items() if count > 1] == []


def test_validation_sentences_are_new_combinations_of_trained_words():
    for side in ("english", "kannada"):
        trained, validation = ({getattr(p, side) for p in ps} for ps in (TRAINING, VALIDATION))
        assert not trained & validation
    trained = sentences_per_word(TRAINING)
    assert min(trained[word] for word in sentences_per_word(VALIDATION)) >= 8


def test_sentences_are_plain_words_in_their_own_script():
    for english, kannada, _ in ROWS:
        assert re.fullmatch("[a-z]+( [a-z]+){0,10}", english), english
        assert re.fullmatch("[\u0c80-\u0cff]+( [\u0c80-\u0cff]+)*", kannada), kannada
        assert unicodedata.is_normalized("NFC", kannada), kannada
        # A vowel sign or virama needs a consonant before it.
        assert not re.search("(^| |[\u0cbe-\u0ccd])[\u0cbe-\u0ccd]", kannada), kannada
