"""The grammar that the phrasebook of the package was built from."""

import doctest
from collections import Counter

import actions
import grammar
import patterns
import pytest
import words
from grammar import FOLDER, build_phrasebook, templates, to_tsv

from jaxformer.text import load_phrasebook

BOOK = load_phrasebook()


def test_files_are_what_the_grammar_builds():
    for name, rows in zip(("train.tsv", "validation.tsv"), build_phrasebook(), strict=True):
        assert (FOLDER / name).read_bytes() == to_tsv(rows), f"python {grammar.__file__}"


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


def test_a_name_is_left_to_validation_in_the_sentence_that_has_all_others():
    trained = {phrase.english for phrase in BOOK.train}
    assert ("my name is prathamesh", "ನನ್ನ ಹೆಸರು ಪ್ರಥಮೇಶ್", "names") in BOOK.validation
    names = [str(name) for name in words.NAMES]
    assert len(names) > 50
    assert [n for n in names if f"my name is {n}" not in trained] == ["prathamesh"]
    assert sum("prathamesh" in sentence.split() for sentence in trained) > 100


@pytest.mark.parametrize("module", [grammar, patterns], ids=lambda module: module.__name__)
def test_examples_run(module):
    failed, tried = doctest.testmod(module)
    assert tried > 0 and failed == 0


@pytest.mark.parametrize(
    "verb, habit, past",
    [
        ("go", "ಹೋಗುತ್ತೇನೆ ಹೋಗುತ್ತೇವೆ ಹೋಗುತ್ತೀರಿ ಹೋಗುತ್ತಾನೆ ಹೋಗುತ್ತಾಳೆ ಹೋಗುತ್ತಾರೆ",
         "ಹೋದೆ ಹೋದೆವು ಹೋದಿರಿ ಹೋದನು ಹೋದಳು ಹೋದರು"),
        ("come", "ಬರುತ್ತೇನೆ ಬರುತ್ತೇವೆ ಬರುತ್ತೀರಿ ಬರುತ್ತಾನೆ ಬರುತ್ತಾಳೆ ಬರುತ್ತಾರೆ",
         "ಬಂದೆ ಬಂದೆವು ಬಂದಿರಿ ಬಂದನು ಬಂದಳು ಬಂದರು"),
        ("drink", "ಕುಡಿಯುತ್ತೇನೆ ಕುಡಿಯುತ್ತೇವೆ ಕುಡಿಯುತ್ತೀರಿ ಕುಡಿಯುತ್ತಾನೆ ಕುಡಿಯುತ್ತಾಳೆ ಕುಡಿಯುತ್ತಾರೆ",
         "ಕುಡಿದೆ ಕುಡಿದೆವು ಕುಡಿದಿರಿ ಕುಡಿದನು ಕುಡಿದಳು ಕುಡಿದರು"),
        ("learn", "ಕಲಿಯುತ್ತೇನೆ ಕಲಿಯುತ್ತೇವೆ ಕಲಿಯುತ್ತೀರಿ ಕಲಿಯುತ್ತಾನೆ ಕಲಿಯುತ್ತಾಳೆ ಕಲಿಯುತ್ತಾರೆ",
         "ಕಲಿತೆ ಕಲಿತೆವು ಕಲಿತಿರಿ ಕಲಿತನು ಕಲಿತಳು ಕಲಿತರು"),
    ],
)  # fmt: skip
def test_verbs_agree_with_person_and_gender(verb, habit, past):
    action = next(a for a in actions.ACTIONS if a.verb.english.split()[0] == verb)
    assert [f"{action.habit}{s.now}".split()[-1] for s in words.PRONOUNS] == habit.split()
    assert [f"{action.past}{s.then}".split()[-1] for s in words.PRONOUNS] == past.split()
