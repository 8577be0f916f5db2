"""Helpers to prepare texts: tokenizers, vocabulary sizes, checks and samples."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from jaxformer import text
from jaxformer.config import DataConfig, ExperimentConfig, ModelConfig, TokenizerConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.storage import default_cache_dir
from jaxformer.text.store.store import cache_path, remembered
from jaxformer.text.tables.table import text_bytes

Encoded = TypeVar("Encoded")

_LAYOUT = 2  # version of how tokenizers are trained; part of their key in the cache


def cache_dir(config: DataConfig) -> pathlib.Path | None:
    """Folder for what is prepared; None, and so memory, if there is no home folder."""
    return default_cache_dir() if config.cache is None else pathlib.Path(config.cache)


def encode_each(
    texts: Sequence[str], encode: Callable[..., Encoded], *columns: Sequence[str]
) -> list[Encoded]:
    """Encodes texts one by one; errors name the index of the text."""
    if isinstance(texts, str):
        raise DataError(f"texts must be a list of texts, got the text {texts[:20]!r}; put it in []")
    encoded = []
    for index, arguments in enumerate(zip(texts, *columns, strict=True)):
        try:
            encoded.append(encode(*arguments))
        except DataError as error:
            raise DataError(f"text {index}: {error}") from None
    return encoded


def train_tokenizer(
    config: TokenizerConfig,
    train_text: Sequence[str],
    validation_text: Sequence[str],
    cache: pathlib.Path | None = None,
    added: Sequence[str] = (),
) -> text.Tokenizer:
    """Trains a tokenizer, or reads one of kind "file"; its size includes the `added` tokens."""
    if config.kind == "pretrained":
        raise ConfigError(
            "tokenizer.kind 'pretrained' is the tokenizer of the model that a run starts from, got "
            "no init_from; set it, or choose another kind"
        )
    if config.path is not None:
        tokenizer = _read_tokenizer(config.path, config.end_of_text)
    else:
        size = None if config.most_tokens is None else config.most_tokens - len(added)
        key = _LAYOUT, config.kind, size, fingerprint(train_text, validation_text)
        stored = remembered(
            cache_path(cache, "tokenizers", *key),
            lambda: _train_tokenizer(config.kind, size, train_text, validation_text).to_json(),
        )
        tokenizer = text.Tokenizer.from_json(stored)
    return text.with_special_tokens(tokenizer, added) if added else tokenizer


def _read_tokenizer(path: str, end_of_text: str | None) -> text.Tokenizer:
    """Reads a tokenizer's file; `end_of_text` is None if it has jaxformer's name or is absent."""
    tokenizer = text.Tokenizer.load(path)
    if end_of_text is not None:
        tokenizer = tokenizer.with_roles(text.TokenRoles(end_of_text=end_of_text))
        if tokenizer.end_of_text is None:
            raise DataError(
                f"tokenizer.end_of_text must be a token of {path}, got {end_of_text!r}, which it "
                "does not have; name a token that it has"
            )
    return tokenizer


def _train_tokenizer(
    kind: str, size: int | None, train_text: Sequence[str], validation_text: Sequence[str]
) -> text.Tokenizer:
    if kind == "byte":
        return text.byte_tokenizer()
    if kind == "character":
        return text.train_character([*train_text, *validation_text])  # none may be unknown
    if kind == "word":
        return text.train_word(train_text, size)
    assert size is not None  # it has a default
    return text.train_bpe(train_text, size)


def with_vocab_sizes(
    config: ExperimentConfig, tokenizers: tuple[text.Tokenizer, ...]
) -> ExperimentConfig:
    """Fills in the sizes of the vocabularies, or checks that they are large enough."""
    sizes = dict[str, Any]()
    for key, tokenizer in zip(_vocab_keys(config, len(tokenizers)), tokenizers[::-1], strict=False):
        sizes[key] = getattr(config.model, key) or tokenizer.vocab_size
        if sizes[key] < tokenizer.vocab_size:
            raise ConfigError(
                f"model.{key} must be at least the tokenizer's {tokenizer.vocab_size}, got "
                f"{sizes[key]}; raise it, or remove it to take the tokenizer's"
            )
    return dataclasses.replace(config, model=dataclasses.replace(config.model, **sizes))


def with_most_tokens(
    config: ExperimentConfig, num_tokenizers: int, added: Sequence[str]
) -> ExperimentConfig:
    """Fills in the largest vocabularies that data can lead to; ConfigError if unknown."""
    tokenizer, model, sizes = config.tokenizer, config.model, dict[str, Any]()
    for key in _vocab_keys(config, num_tokenizers):
        sizes[key] = getattr(model, key) or tokenizer.most_tokens
        if sizes[key] is None and (tokenizer.kind == "byte" or tokenizer.path is not None):
            sizes[key] = train_tokenizer(tokenizer, (), (), None, added).vocab_size
        if sizes[key] is None:
            flag = f"--model.{key.replace('_', '-')} 256"
            raise needs_flag(f"the vocabulary of a {tokenizer.kind} tokenizer", flag)
    return dataclasses.replace(config, model=dataclasses.replace(model, **sizes))


def _vocab_keys(config: ExperimentConfig, num_tokenizers: int) -> tuple[str, ...]:
    """Keys of the vocabularies: that of the targets, and of the sources if it is separate."""
    is_joint = num_tokenizers == 1 or config.tokenizer.joint
    return ("vocab_size",) if is_joint else ("vocab_size", "source_vocab_size")


def needs_flag(size: str, flag: str) -> ConfigError:
    """Error for a size that only data or a flag can set."""
    return ConfigError(f"a plan reads no data, so it needs {size} from a flag; for example, {flag}")


def within_tables(
    tokenizers: tuple[text.Tokenizer, ...], model: ModelConfig
) -> tuple[text.Tokenizer, ...]:
    """Tokenizers of pretrained weights, limited to the tokens that the model has rows for."""
    *sources, target = tokenizers
    size = model.vocab_size or target.vocab_size
    source_size = model.source_vocab_size or size
    return (*(source.limited_to(source_size) for source in sources), target.limited_to(size))


def fingerprint(*parts: Iterable[str]) -> str:
    """SHA-256 of the texts, so that a run is not resumed on other texts."""
    digest = hashlib.sha256()
    for index, texts in enumerate(parts):
        for document in (*(("\0",) if index else ()), *texts):
            digest.update(hashlib.sha256(text_bytes(document)).digest())
    return digest.hexdigest()


def evenly_chosen(texts: Sequence[str], count: int) -> tuple[str, ...]:
    """Takes evenly spaced texts to show; all if there are few."""
    chosen = min(count, len(texts))
    return tuple(texts[i * len(texts) // chosen] for i in range(chosen))
