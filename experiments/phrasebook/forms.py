"""Inflection: English and Kannada agreement of subject and verb."""

import dataclasses

__all__ = ["Action", "Holder", "Noun", "Place", "Subject", "Verb", "Word"]

# Kannada verbs agree with I, we, you, he, she and they, in this order everywhere. "You" is the
# polite ನೀವು; "they" is also used for elders, out of respect.
_NOW = ("ೇನೆ", "ೇವೆ", "ೀರಿ", "ಾನೆ", "ಾಳೆ", "ಾರೆ")
_THEN = ("ೆ", "ೆವು", "ಿರಿ", "ನು", "ಳು", "ರು")
# The same endings with -ಆ ask a question. No questions are about "I" or "we".
_ASKED_NOW = ("", "", "ೀರಾ", "ಾನಾ", "ಾಳಾ", "ಾರಾ")
_ASKED_THEN = ("", "", "ಿರಾ", "ನಾ", "ಳಾ", "ರಾ")


@dataclasses.dataclass(frozen=True)
class Word:
    """A word or phrase; a template's `{slot}` is its English.

    Args:
        english: as used in a sentence.
        kannada: the same; nouns in the nominative.
    """

    english: str
    kannada: str

    def __str__(self) -> str:
        return self.english


@dataclasses.dataclass(frozen=True)
class Subject(Word):
    """Who does something: "i", "my father", "ramesh".

    Args:
        english: the subject.
        kannada: the nominative.
        person: ending of the Kannada verb, 0 to 5.
        singular: whether the English verb takes an s; an elder's Kannada verb is plural.
        feminine: whether professions take the feminine form.
    """

    person: int
    singular: bool
    feminine: bool = False

    @property
    def is_(self) -> str:
        """The present of "be"."""
        return "am" if self.person == 0 else "is" if self.singular else "are"

    @property
    def was(self) -> str:
        """The past of "be"."""
        return "was" if self.person == 0 or self.singular else "were"

    @property
    def do(self) -> str:
        """The present of "do"."""
        return "does" if self.singular else "do"

    @property
    def have(self) -> str:
        """The present of "have"."""
        return "has" if self.singular else "have"

    @property
    def s(self) -> str:
        """Ending of a regular English verb."""
        return "s" if self.singular else ""

    @property
    def now(self) -> str:
        """Ending of a Kannada present stem."""
        return _NOW[self.person]

    @property
    def then(self) -> str:
        """Ending of a Kannada past stem."""
        return _THEN[self.person]

    @property
    def asked_now(self) -> str:
        """Ending of a Kannada present stem in a question."""
        return _ASKED_NOW[self.person]

    @property
    def asked_then(self) -> str:
        """Ending of a Kannada past stem in a question."""
        return _ASKED_THEN[self.person]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holder(Subject):
    """A subject that can also have, like or be given something.

    Args:
        genitive: Kannada, whose.
        dative: Kannada, to whom.
        object: English after a verb or preposition: "me", "my father".
    """

    genitive: str
    dative: str
    object: str

    @property
    def accusative(self) -> str:
        """Kannada, whom."""
        return self.genitive + "ನ್ನು"


@dataclasses.dataclass(frozen=True)
class Verb:
    """A verb.

    Args:
        english: base, third person, past and -ing.
        root: the Kannada infinitive without its ending: ಹೋಗ of ಹೋಗಲು.
        past: the Kannada stem of the past tense, often irregular: ಹೋದ.
        request: the Kannada polite imperative, often irregular: ಬನ್ನಿ.
    """

    english: str
    root: str
    past: str
    request: str


@dataclasses.dataclass(frozen=True)
class Action:
    """A verb with its complement.

    Args:
        verb: such as "go".
        english: such as "to the school".
        kannada: such as ಶಾಲೆಗೆ.
        daily: whether people do it every day.
    """

    verb: Verb
    english: str
    kannada: str
    daily: bool

    def _english(self, form: int) -> str:
        return f"{self.verb.english.split()[form]} {self.english}".rstrip()

    def _kannada(self, verb: str) -> str:
        return f"{self.kannada} {verb}".lstrip()

    @property
    def base(self) -> str:
        """English without agreement."""
        return self._english(0)

    @property
    def did(self) -> str:
        """English past."""
        return self._english(2)

    @property
    def doing(self) -> str:
        """English -ing."""
        return self._english(3)

    def does(self, subject: Subject) -> str:
        """English present."""
        return self._english(1 if subject.singular else 0)

    @property
    def root(self) -> str:
        """Kannada, for endings without a person, such as ಬೇಕು."""
        return self._kannada(self.verb.root)

    @property
    def habit(self) -> str:
        """Kannada stem of present and future."""
        return self.root + "ುತ್ತ"

    @property
    def going_on(self) -> str:
        """Kannada stem of the progressive."""
        return self.root + "ುತ್ತಿದ್ದ"

    @property
    def past(self) -> str:
        """Kannada stem of the past."""
        return self._kannada(self.verb.past)

    @property
    def request(self) -> str:
        """Kannada polite imperative."""
        return self._kannada(self.verb.request)


@dataclasses.dataclass(frozen=True)
class Place(Word):
    """A place.

    Args:
        english: with its article.
        kannada: the nominative.
        genitive: Kannada; the locative and the ablative are built on it.
        dative: Kannada, to the place.
    """

    genitive: str
    dative: str

    @property
    def inside(self) -> str:
        """Kannada locative."""
        return self.genitive + "ಲ್ಲಿ"

    @property
    def away(self) -> str:
        """Kannada ablative."""
        return self.genitive + "ಿಂದ"


@dataclasses.dataclass(frozen=True)
class Noun(Word):
    """A thing that can be counted.

    Args:
        english: singular without an article.
        kannada: the nominative.
        accusative: Kannada, of a definite object.
        genitive: Kannada.
    """

    accusative: str
    genitive: str

    @property
    def with_article(self) -> str:
        """English with the indefinite article."""
        return f"{'an' if self.english[0] in 'aeiou' else 'a'} {self.english}"

    @property
    def many(self) -> str:
        """English plural."""
        return self.english + ("es" if self.english.endswith("x") else "s")

    @property
    def plural(self) -> str:
        """Kannada plural, nominative."""
        return self.kannada + "ಗಳು"

    @property
    def plural_accusative(self) -> str:
        """Kannada plural, accusative."""
        return self.kannada + "ಗಳನ್ನು"
