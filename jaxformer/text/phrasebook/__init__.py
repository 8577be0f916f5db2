"""A bundled English→Kannada phrasebook.

English is in lower case, Kannada in Unicode NFC. Neither has punctuation: a question is "what is
your name". "You" is the polite ನೀವು, "he" and "she" are the familiar ಅವನು and ಅವಳು, and elders
take the plural of respect. Each English sentence has exactly one Kannada sentence, and vice versa.
The files were generated from a small grammar, which is not part of the package.
"""

import importlib.resources
from typing import NamedTuple


class Phrase(NamedTuple):
    """A sentence in both languages.

    Args:
        english: words in lower case, one space between them.
        kannada: its translation.
        topic: one of greetings, names, family, numbers, days, places, food, verbs, questions and
            negation.

    Example:
        >>> Phrase("thank you", "ಧನ್ಯವಾದಗಳು", "greetings").english
        'thank you'
    """

    english: str
    kannada: str
    topic: str


def load_phrasebook() -> tuple[tuple[Phrase, ...], tuple[Phrase, ...]]:
    """Loads the phrasebook that ships with the package; downloads nothing.

    Returns:
        The phrases for training, and those for validation: new combinations of words that occur
        several times in training. Sentences of one pattern are adjacent.

    Example:
        >>> training, validation = load_phrasebook()
        >>> len(training) > 20_000
        True
        >>> {phrase.english: phrase.kannada for phrase in validation}["my name is prathamesh"]
        'ನನ್ನ ಹೆಸರು ಪ್ರಥಮೇಶ್'
    """
    return _read("train.tsv"), _read("validation.tsv")


def _read(name: str) -> tuple[Phrase, ...]:
    text = (importlib.resources.files(__name__) / name).read_text(encoding="utf-8")
    return tuple(Phrase(*line.split("\t")) for line in text.splitlines())
