"""Pretrained word vectors that initialize a model's embedding."""

import dataclasses
from typing import Any

import jax.numpy as jnp

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.errors import ConfigError
from jaxformer.modules.embedding import FROZEN_EMBEDDING

__all__ = ["StartVectors"]


@dataclasses.dataclass(frozen=True, eq=False)
class StartVectors:
    """Pretrained vectors of the tokenizer's words.

    Args:
        vectors: the vectors found; None if the config names no file.
        report: report lines with their number.
    """

    vectors: text.WordVectors | None
    report: tuple[str, ...]

    @classmethod
    def read(
        cls, config: ExperimentConfig, tokenizer: text.Tokenizer
    ) -> tuple["StartVectors", ExperimentConfig]:
        """Reads the file named by the config, and fills the vectors' width into the config.

        A run that starts from other weights already has vectors, and reads none.

        Raises:
            ConfigError: the config has another width.
            DataError: the file cannot be used.
        """
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
