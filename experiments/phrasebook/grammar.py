"""Builds the phrasebook of the package from its grammar: all sentences, and which are held out.

A validation sentence is a new combination: neither its English nor its Kannada side occurs in
training, but every word of both sides does, in several other sentences.

Run: python experiments/phrasebook/grammar.py   # writes jaxformer/text/phrasebook/*.tsv
"""

import functools
import pathlib
from collections import Counter

from patterns import Template, rank
from questions import questions_and_negation
from statements import statements

__all__ = ["FOLDER", "build_phrasebook", "templates", "to_tsv"]

FOLDER = pathlib.Path(__file__).parents[2] / "jaxformer" / "text" / "phrasebook"

Row = tuple[str, str, str]

# Validation share of each template that keeps enough training sentences.
_SHARE = 0.085
_SMALLEST_TEMPLATE = 60
# Each word of a validation sentence occurs at least this often in training.
_OTHERS = 8
# This sentence is for validation. Training has "my name is" with every other name, and this name
# elsewhere.
_ALWAYS_VALIDATION = "my name is prathamesh"
_NEVER_VALIDATION = "my name is "


@functools.cache
def templates() -> tuple[Template, ...]:
    """Fills every pattern, which takes a few seconds."""
    return *statements(), *questions_and_negation()


def build_phrasebook() -> tuple[list[Row], list[Row]]:
    """Builds training and validation rows: (English, Kannada, topic), always the same.

    Returns:
        Rows in the order of their templates.

    Example:
        >>> train, validation = build_phrasebook()
        >>> ("thank you", "ಧನ್ಯವಾದಗಳು", "greetings") in train
        True
        >>> ("my name is prathamesh", "ನನ್ನ ಹೆಸರು ಪ್ರಥಮೇಶ್", "names") in validation
        True
    """
    counts = Counter(
        word for template in templates() for pair in template.pairs for word in _words(pair)
    )
    validation: set[str] = set()
    for template in templates():
        validation |= _draw_validation(template, counts)
    rows = [(*pair, template.topic) for template in templates() for pair in template.pairs]
    return (
        [row for row in rows if row[0] not in validation],
        [row for row in rows if row[0] in validation],
    )


def to_tsv(rows: list[Row]) -> bytes:
    r"""Formats rows as TSV.

    Example:
        >>> to_tsv([("yes", "ಹೌದು", "greetings")]).decode()
        'yes\tಹೌದು\tgreetings\n'
    """
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def _words(pair: tuple[str, str]) -> set[str]:
    return {word for side in pair for word in side.split()}


def _draw_validation(template: Template, counts: Counter[str]) -> set[str]:
    """Draws from a template while training keeps enough of each word; updates `counts`."""
    if len(template.pairs) < _SMALLEST_TEMPLATE:
        return set()
    quota = round(_SHARE * len(template.pairs))
    drawn: set[str] = set()
    for pair in sorted(template.pairs, key=lambda pair: _validation_rank(pair[0])):
        words = _words(pair)
        if (
            len(drawn) < quota
            and (pair[0] == _ALWAYS_VALIDATION or not pair[0].startswith(_NEVER_VALIDATION))
            and all(counts[word] > _OTHERS for word in words)
        ):
            drawn.add(pair[0])
            counts.subtract(words)
    return drawn


def _validation_rank(english: str) -> tuple[bool, bytes]:
    return english != _ALWAYS_VALIDATION, rank(english, "hold out")


def main() -> None:
    """Writes the files of the package."""
    for name, rows in zip(("train", "validation"), build_phrasebook(), strict=True):
        path = FOLDER / f"{name}.tsv"
        path.write_bytes(to_tsv(rows))
        print(f"wrote {len(rows)} pairs to {path}")


if __name__ == "__main__":
    main()
