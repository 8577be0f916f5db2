"""The words of a translator's training sources, to tell which words are new to it."""

import dataclasses
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Self

from jaxformer import text
from jaxformer.runs.json_files import read_json, write_json

__all__ = ["KnownWords"]

_FILE = "source_words.json"
_MOST = 100_000  # different words, about 1 MB
# Thai, Lao, Burmese, Khmer, kana and Chinese characters: there are no spaces between the words.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)


@dataclasses.dataclass(frozen=True)
class KnownWords:
    """The different words that a translator was trained on.

    Args:
        words: all of them; None where they are not known, so that none is called new.
    """

    words: frozenset[str] | None = None

    @classmethod
    def collect(cls, sources: Sequence[str], tokenizer: text.Tokenizer) -> Self:
        """Collects the words of training sources; of a word tokenizer, those that have a token.

        Where there are more than 100,000, a new one is nothing special, and none are kept.
        """
        words: set[str] = set()
        for source in sources:
            words.update(_words(source, tokenizer))
            if len(words) > _MOST:
                return cls()
        return cls(
            frozenset(words if tokenizer.unknown is None else words & tokenizer.words.keys())
        )

    def union(self, other: Self) -> Self:
        """The words of both; not known where those of one are not."""
        if self.words is None or other.words is None:
            return type(self)()
        return type(self)(self.words | other.words)

    def find_new(self, sentences: Sequence[str], tokenizer: text.Tokenizer) -> list[str]:
        """Words of sentences that are not known, in their order, each once."""
        if self.words is None:
            return []
        words = (word for sentence in sentences for word in _words(sentence, tokenizer))
        return [word for word in dict.fromkeys(words) if word not in self.words]

    def save(self, folder: pathlib.Path) -> None:
        """Writes the words into a run folder."""
        if self.words is not None:
            write_json(folder / _FILE, sorted(self.words))

    @classmethod
    def load(cls, folder: pathlib.Path) -> Self:
        """Reads the words of a run folder, if it has them.

        Raises:
            CheckpointError: the file is damaged.
        """
        if not (folder / _FILE).exists():
            return cls()
        return cls(read_json(folder / _FILE, lambda words: frozenset(map(str, words))))


def _words(sentence: str, tokenizer: text.Tokenizer) -> Iterator[str]:
    """Words, or characters where words are not separated and have no tokens, either."""
    for word in text.split_words(sentence):
        if tokenizer.unknown is None and _UNSPACED.search(word):
            yield from word
        else:
            yield word
