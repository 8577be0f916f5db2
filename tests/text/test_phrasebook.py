import importlib.resources
import re
import unicodedata
from collections import Counter

import pytest

from jaxformer.text import load_phrasebook

BOOK = load_phrasebook()
ROWS = BOOK.train + BOOK.validation
KANNADA = {phrase.english: phrase.kannada for phrase in ROWS}
TOPICS = set("greetings names family numbers days places food verbs questions negation".split())


def sentences_per_word(phrases):
    return Counter(
        word for phrase in phrases for word in {*phrase.english.split(), *phrase.kannada.split()}
    )


def test_phrasebook_is_large_enough_to_learn_from_and_small_enough_to_bundle():
    assert 20_000 < len(BOOK.train) < 26_000
    assert 1_900 < len(BOOK.validation) < 2_500
    folder = importlib.resources.files("jaxformer.text.phrasebook")
    names = ("train.tsv", "validation.tsv")
    assert sum(len((folder / name).read_bytes()) for name in names) < 3_500_000


def test_each_sentence_has_one_translation_and_stands_once_in_either_language():
    for side in ("english", "kannada"):
        counts = Counter(getattr(phrase, side) for phrase in ROWS)
        assert [sentence for sentence, count in counts.items() if count > 1] == []


def test_validation_sentences_are_new_combinations_of_trained_words():
    for side in ("english", "kannada"):
        trained, validation = (
            {getattr(p, side) for p in ps} for ps in (BOOK.train, BOOK.validation)
        )
        assert not trained & validation
    trained = sentences_per_word(BOOK.train)
    assert min(trained[word] for word in sentences_per_word(BOOK.validation)) >= 8


def test_sentences_are_plain_words_in_their_own_script():
    for english, kannada, _ in ROWS:
        assert re.fullmatch("[a-z]+( [a-z]+){0,10}", english), english
        assert re.fullmatch("[\u0c80-\u0cff]+( [\u0c80-\u0cff]+)*", kannada), kannada
        assert unicodedata.is_normalized("NFC", kannada), kannada
        # A vowel sign or virama needs a consonant before it.
        assert not re.search("(^| |[\u0cbe-\u0ccd])[\u0cbe-\u0ccd]", kannada), kannada


def test_every_topic_is_in_training_and_in_validation():
    for phrases in (BOOK.train, BOOK.validation):
        assert {phrase.topic for phrase in phrases} == TOPICS
        assert min(Counter(phrase.topic for phrase in phrases).values()) > 90


# Written by hand, not by the rules.
@pytest.mark.parametrize(
    "english, kannada",
    [
        ("good evening shankar", "ಶುಭ ಸಂಜೆ ಶಂಕರ್"),
        ("i saw my grandfather in the field", "ನಾನು ನನ್ನ ಅಜ್ಜನನ್ನು ಹೊಲದಲ್ಲಿ ನೋಡಿದೆ"),
        ("she came at six in the evening", "ಅವಳು ಸಂಜೆ ಆರು ಗಂಟೆಗೆ ಬಂದಳು"),
        ("please give my younger sister fruit", "ದಯವಿಟ್ಟು ನನ್ನ ತಂಗಿಗೆ ಹಣ್ಣು ಕೊಡಿ"),
        ("please go to the hospital", "ದಯವಿಟ್ಟು ಆಸ್ಪತ್ರೆಗೆ ಹೋಗಿ"),
        ("they do not learn telugu", "ಅವರು ತೆಲುಗು ಕಲಿಯುವುದಿಲ್ಲ"),
    ],
)
def test_sentences_are_translated_as_a_speaker_would(english, kannada):
    assert KANNADA[english] == kannada
