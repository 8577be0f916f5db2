"""The grammar that the phrasebook of the package was built from."""

import grammar
import words
from grammar import FOLDER, build_phrasebook, to_tsv

from jaxformer.text import load_phrasebook

TRAINING, VALIDATION = load_phrasebook()


def test_files_are_what_the_grammar_builds():
    for name, rows in zip(("train.tsv", "validation.tsv"), build_phrasebook(), strict=True):
        assert (FOLDER / name).read_bytes() == to_tsv(rows), f"python {grammar.__file__}"


def test_a_name_is_left_to_validation_in_the_sentence_that_has_all_others():
    trained = {phrase.english for phrase in TRAINING}
    assert ("my name is prathamesh", "ನನ್ನ ಹೆಸರು ಪ್ರಥಮೇಶ್", "names") in VALIDATION
    names = [str(name) for name in words.NAMES]
    assert len(names) > 50
    assert [n for n in names if f"my name is {n}" not in trained] == ["prathamesh"]
    assert sum("prathamesh" in sentence.split() for sentence in trained) > 100
