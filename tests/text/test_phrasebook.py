import importlib.resources
import re
import unicodedata
from collections import Counter

import pytest

from jaxformer.text import load_phrasebook
from jaxformer.text.phrasebook import actions, words
from jaxformer.text.phrasebook.grammar import build_phrasebook, templates, to_tsv

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


def test_files_are_what_the_grammar_builds():
    folder = importlib.resources.files("jaxformer.text.phrasebook")
    for name, rows in zip(("train.tsv", "validation.tsv"), build_phrasebook(), strict=True):
        assert (folder / name).read_bytes() == to_tsv(rows), "python -m jaxformer.text.phrasebook"


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


def test_each_filler_and_template_is_trained_enough():
    trained = Counter(word for phrase in BOOK.train for word in phrase.english.split())
    text = "\n".join(f" {phrase.english} " for phrase in BOOK.train)
    fillers = words.NAMES + words.PLACES + words.CITIES + words.THINGS + words.MEALS + words.DAYS
    fillers += words.NUMBERS + words.RELATIVES + words.SIBLINGS + words.HOURS + words.PRONOUNS
    assert [str(filler) for filler in fillers if text.count(f" {filler} ") < 8] == []
    verbs = [set(action.verb.english.split()) for action in actions.ACTIONS]
    assert [verb for verb in verbs if sum(trained[form] for form in verb) < 50] == []
    validation = {phrase.english for phrase in BOOK.validation}
    for template in templates():
        drawn = sum(english in validation for english, _ in template.pairs)
        assert drawn == 0 or len(template.pairs) - drawn >= 50


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


def test_a_name_is_left_to_validation_in_the_sentence_that_has_all_others():
    trained = {phrase.english for phrase in BOOK.train}
    assert ("my name is prathamesh", "ನನ್ನ ಹೆಸರು ಪ್ರಥಮೇಶ್", "names") in BOOK.validation
    names = [str(name) for name in words.NAMES]
    assert len(names) > 50
    assert [n for n in names if f"my name is {n}" not in trained] == ["prathamesh"]
    assert sum("prathamesh" in sentence.split() for sentence in trained) > 100


# Written by hand, not by the rules.
@pytest.mark.parametrize(
    "english, kannada",
    [
        ("good evening shankar", "ಶುಭ ಸಂಜೆ ಶಂಕರ್"),
        ("the name of his father is prakash", "ಅವನ ತಂದೆಯ ಹೆಸರು ಪ್ರಕಾಶ್"),
        ("this is my mother", "ಇವರು ನನ್ನ ತಾಯಿ"),
        ("this is her younger brother", "ಇವನು ಅವಳ ತಮ್ಮ"),
        ("i saw my grandfather in the field", "ನಾನು ನನ್ನ ಅಜ್ಜನನ್ನು ಹೊಲದಲ್ಲಿ ನೋಡಿದೆ"),
        ("their grandfather is a singer", "ಅವರ ಅಜ್ಜ ಗಾಯಕರು"),
        ("you have three younger sisters", "ನಿಮಗೆ ಮೂವರು ತಂಗಿಯರು ಇದ್ದಾರೆ"),
        ("anand bought eighty books yesterday", "ಆನಂದ್ ನಿನ್ನೆ ಎಂಬತ್ತು ಪುಸ್ತಕಗಳನ್ನು ಖರೀದಿಸಿದನು"),
        ("she came at six in the evening", "ಅವಳು ಸಂಜೆ ಆರು ಗಂಟೆಗೆ ಬಂದಳು"),
        ("we went to belgaum with sita", "ನಾವು ಸೀತಾ ಜೊತೆ ಬೆಳಗಾವಿಗೆ ಹೋದೆವು"),
        ("rahul came from mysore", "ರಾಹುಲ್ ಮೈಸೂರಿನಿಂದ ಬಂದನು"),
        ("the coconut water is very hot", "ಎಳನೀರು ತುಂಬಾ ಬಿಸಿಯಾಗಿದೆ"),
        ("please give my younger sister fruit", "ದಯವಿಟ್ಟು ನನ್ನ ತಂಗಿಗೆ ಹಣ್ಣು ಕೊಡಿ"),
        ("i was speaking kannada yesterday", "ನಾನು ನಿನ್ನೆ ಕನ್ನಡ ಮಾತನಾಡುತ್ತಿದ್ದೆ"),
        ("they are speaking tulu now", "ಅವರು ಈಗ ತುಳು ಮಾತನಾಡುತ್ತಿದ್ದಾರೆ"),
        ("let us bring the clock", "ಗಡಿಯಾರವನ್ನು ತರೋಣ"),
        ("please go to the hospital", "ದಯವಿಟ್ಟು ಆಸ್ಪತ್ರೆಗೆ ಹೋಗಿ"),
        ("what is your name", "ನಿಮ್ಮ ಹೆಸರು ಏನು"),
        ("did you eat puri yesterday", "ನೀವು ನಿನ್ನೆ ಪೂರಿ ತಿಂದಿರಾ"),
        ("will she read the story tomorrow", "ಅವಳು ನಾಳೆ ಕಥೆಯನ್ನು ಓದುತ್ತಾಳಾ"),
        ("they do not learn telugu", "ಅವರು ತೆಲುಗು ಕಲಿಯುವುದಿಲ್ಲ"),
        ("please do not cook", "ದಯವಿಟ್ಟು ಅಡುಗೆ ಮಾಡಬೇಡಿ"),
    ],
)
def test_sentences_are_translated_as_a_speaker_would(english, kannada):
    assert KANNADA[english] == kannada


@pytest.mark.parametrize(
    "verb, habit, past",
    [
        (
            "go",
            "ಹೋಗುತ್ತೇನೆ ಹೋಗುತ್ತೇವೆ ಹೋಗುತ್ತೀರಿ ಹೋಗುತ್ತಾನೆ ಹೋಗುತ್ತಾಳೆ ಹೋಗುತ್ತಾರೆ",
            "ಹೋದೆ ಹೋದೆವು ಹೋದಿರಿ ಹೋದನು ಹೋದಳು ಹೋದರು",
        ),
        (
            "come",
            "ಬರುತ್ತೇನೆ ಬರುತ್ತೇವೆ ಬರುತ್ತೀರಿ ಬರುತ್ತಾನೆ ಬರುತ್ತಾಳೆ ಬರುತ್ತಾರೆ",
            "ಬಂದೆ ಬಂದೆವು ಬಂದಿರಿ ಬಂದನು ಬಂದಳು ಬಂದರು",
        ),
        (
            "drink",
            "ಕುಡಿಯುತ್ತೇನೆ ಕುಡಿಯುತ್ತೇವೆ ಕುಡಿಯುತ್ತೀರಿ ಕುಡಿಯುತ್ತಾನೆ ಕುಡಿಯುತ್ತಾಳೆ ಕುಡಿಯುತ್ತಾರೆ",
            "ಕುಡಿದೆ ಕುಡಿದೆವು ಕುಡಿದಿರಿ ಕುಡಿದನು ಕುಡಿದಳು ಕುಡಿದರು",
        ),
        (
            "learn",
            "ಕಲಿಯುತ್ತೇನೆ ಕಲಿಯುತ್ತೇವೆ ಕಲಿಯುತ್ತೀರಿ ಕಲಿಯುತ್ತಾನೆ ಕಲಿಯುತ್ತಾಳೆ ಕಲಿಯುತ್ತಾರೆ",
            "ಕಲಿತೆ ಕಲಿತೆವು ಕಲಿತಿರಿ ಕಲಿತನು ಕಲಿತಳು ಕಲಿತರು",
        ),
    ],
)
def test_verbs_agree_with_person_and_gender(verb, habit, past):
    action = next(a for a in actions.ACTIONS if a.verb.english.split()[0] == verb)
    assert [f"{action.habit}{s.now}".split()[-1] for s in words.PRONOUNS] == habit.split()
    assert [f"{action.past}{s.then}".split()[-1] for s in words.PRONOUNS] == past.split()
