"""Words of a run: their pretrained vectors, and those that a translator was trained on."""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError
from jaxformer.modules.embedding import FROZEN_EMBEDDING
from jaxformer.storage import read_json, write_json

_FILE = "source_words.json"
_MOST = 100_000  # distinct words, about 1 MB
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana and Chinese characters.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)


@dataclasses.dataclass
class _Drawn:
    """Not hashable, so that no cache keeps the vectors."""

    vectors: "StartVectors"
    draw: Callable[[jax.Array], Any]
    path: tuple[str, ...]

    def __call__(self, rng: jax.Array) -> Any:
        return self.vectors.put_into(self.draw(rng), self.path)


@dataclasses.dataclass(frozen=True, eq=False)
class StartVectors:
    """Pretrained vectors of the tokenizer's words."""

    vectors: text.WordVectors | None  # None if the config names no file
    report: tuple[str, ...]  # lines with their number

    @classmethod
    def read(
        cls, config: ExperimentConfig, tokenizer: text.Tokenizer
    ) -> tuple["StartVectors", ExperimentConfig]:
        """Reads the file named by the config, and fills the vectors' width into the config."""
        path, model = config.tokenizer.word_vectors, config.model
        if path is None or config.init_from is not None:  # the weights have them already
            return cls(None, ()), config
        words = tokenizer.words
        found = text.read_word_vectors(path, words)
        width = found.vectors.shape[1]
        if model.embedding_dim is None and width != model.d_model:
            try:
                model = dataclasses.replace(model, embedding_dim=width)
            except ConfigError as error:
                raise ConfigError(
                    f"the vectors of {path} have a width of {width}: {error}"
                ) from None
        if model.table_dim != width:
            raise ConfigError(
                f"model.embedding_dim must be the width of the vectors of {path}, {width}, got "
                f"{model.table_dim}; remove it"
            )
        report = f"word vectors: {len(found.ids):,} of {len(words):,} words are in {path}"
        return cls(found, (report,)), dataclasses.replace(config, model=model)

    def initializer(
        self, draw: Callable[[jax.Array], Any], path: tuple[str, ...]
    ) -> Callable[[jax.Array], Any]:
        """A function that draws parameters, with these vectors in the embedding at a path."""
        return draw if self.vectors is None else _Drawn(self, draw, path)

    def put_into(self, params: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        """Returns the parameters with these vectors in the embedding at a path."""
        if self.vectors is None:
            return params
        if path:
            return {**params, path[0]: self.put_into(params[path[0]], path[1:])}
        name = FROZEN_EMBEDDING if FROZEN_EMBEDDING in params else "embedding"
        table = params[name]
        vectors = jnp.asarray(self.vectors.vectors, table.dtype)
        return {**params, name: table.at[jnp.asarray(self.vectors.ids)].set(vectors)}


@dataclasses.dataclass(frozen=True)
class KnownWords:
    """The distinct words that a translator was trained on."""

    words: frozenset[str] | None = None  # None if unknown, so that no word counts as new

    @classmethod
    def collect(cls, sources: Sequence[str], tokenizer: text.Tokenizer) -> Self:
        """Collects the words of training sources; for a word tokenizer, those that have a token.

        If there are more than 100,000, a new word is nothing special, so none are kept.
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
