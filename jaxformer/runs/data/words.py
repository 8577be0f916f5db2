"""Words that a translator was trained on."""

import dataclasses
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Self

from jaxformer import text
from jaxformer.storage import read_json, write_json

_FILE = "source_words.json"
_MOST = 100_000  # distinct words, about 1 MB
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana and Chinese characters.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)


@dataclasses.dataclass(frozen=True)
class KnownWords:
    """The distinct words that a translator was trained on."""

    words: frozenset[str] | None = None  # None if unknown, so that no word counts as new

    @classmethod
    def collect(cls, sources: Sequence[str], tokenizer: text.Tokenizer) -> Self:
        """Words of training sources, that have a token if words are tokens; unknown if too many."""
        words: set[str] = set()
        for source in sources:
            words.update(_words(source, tokenizer))
            if len(words) > _MOST:  # then a new word is nothing special
                return cls()
        return cls(
            frozenset(words if tokenizer.unknown is None else words & tokenizer.words.keys())
        )

    def union(self, other: Self) -> Self:
        """The words of both; unknown if those of one are."""
        if self.words is None or other.words is None:
            return type(self)()
        return type(self)(self.words | other.words)

    def find_new(self, sentences: Sequence[str], tokenizer: text.Tokenizer) -> list[str]:
        """Unknown words of sentences, in order, each once."""
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
        """Reads the words of a run folder, if it has them."""
        if not (folder / _FILE).exists():
            return cls()
        return cls(read_json(folder / _FILE, lambda words: frozenset(map(str, words))))


def _words(sentence: str, tokenizer: text.Tokenizer) -> Iterator[str]:
    """Words; or characters, for scripts without spaces and tokenizers without word tokens."""
    for word in text.split_words(sentence):
        if tokenizer.unknown is None and _UNSPACED.search(word):
            yield from word
        else:
            yield word
