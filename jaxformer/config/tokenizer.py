"""Config of the tokenizer."""

import dataclasses
from typing import Literal

from jaxformer.config.checks import require_paths, require_positive, require_types
from jaxformer.errors import ConfigError

__all__ = ["TokenizerConfig"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """Tokenizer: how text becomes token ids.

    Args:
        kind: "character", "byte", "word" or byte-level "bpe"; "file", one that is there already; or
            "pretrained", that of the model that a run starts from.
        path: for "file": a tokenizer.json, in the format of the `tokenizers` library, as models on
            Hugging Face have it.
        end_of_text: for "file": the token of it that ends a text, such as "</s>"; when not given,
            `<|endoftext|>`, which GPT-2's has.
        vocab_size: largest number of ids, special tokens included; of "bpe" 2,048 when not given.
            A "word" tokenizer keeps the most frequent words, or all when not given.
        joint: whether source and target of a translation share one vocabulary; if not, each has
            one of vocab_size.
        word_vectors: for "word": text file of pretrained vectors, in the format of word2vec or
            GloVe, that initialize the embeddings of its words; those of the source, where it has a
            vocabulary of its own.
    """

    kind: Literal["character", "byte", "word", "bpe", "file", "pretrained"] = "bpe"
    path: str | None = None
    end_of_text: str | None = None
    vocab_size: int | None = None
    joint: bool = True
    word_vectors: str | None = None

    def __post_init__(self) -> None:
        require_types(self)
        require_paths(self, "path", "word_vectors")
        require_positive(self, "vocab_size")
        if self.kind == "bpe" and self.vocab_size is not None and self.vocab_size < 257:
            raise ConfigError(
                "vocab_size of a byte-level BPE must be at least 257 (256 bytes and the end of "
                f"text), got vocab_size={self.vocab_size}"
            )
        if self.kind in ("byte", "character", "file", "pretrained") and self.vocab_size is not None:
            raise ConfigError(
                f"vocab_size is for word and bpe tokenizers, got kind={self.kind!r} and "
                f"vocab_size={self.vocab_size}; remove it"
            )
        if self.kind == "file" and self.path is None:
            raise ConfigError(
                "tokenizer.kind 'file' needs tokenizer.path, for example 'gpt2/tokenizer.json'"
            )
        for name in ("path", "end_of_text"):
            if self.kind != "file" and getattr(self, name) is not None:
                raise ConfigError(
                    f"{name} is for the tokenizer kind 'file', got kind={self.kind!r} and "
                    f'{name}={getattr(self, name)!r}; remove {name}, or set kind = "file"'
                )
        if self.kind == "file" and not self.joint:
            raise ConfigError(
                "a tokenizer of kind 'file' is that of source and target, got joint=False; remove "
                "joint"
            )
        if self.word_vectors is not None and self.kind != "word":
            raise ConfigError(
                f"word_vectors are for the tokenizer kind 'word', got kind={self.kind!r} and "
                f"word_vectors={self.word_vectors!r}; change one of them"
            )

    @property
    def most_tokens(self) -> int | None:
        """Largest number of ids of a tokenizer that is trained, the default filled in."""
        return 2048 if self.kind == "bpe" and self.vocab_size is None else self.vocab_size
