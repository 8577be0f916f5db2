"""Config of the tokenizer."""

import dataclasses
from typing import Literal

from jaxformer.config.checks import require_positive, require_types
from jaxformer.errors import ConfigError

__all__ = ["TokenizerConfig"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """Tokenizer: how text becomes token ids.

    Args:
        kind: kind of tokenizer: "byte", one id per byte; "character", "word" or byte-level "bpe",
            made from the training text; "file", an existing file; or "pretrained", the tokenizer of
            init_from.
        path: path, for "file", of a tokenizer.json in the format of the Hugging Face `tokenizers`
            library.
        end_of_text: end-of-text token, for "file", such as "</s>"; `<|endoftext|>`, as in GPT-2, if
            not set.
        vocab_size: largest number of token ids, including special tokens, for "bpe" (at least 257)
            and "word", which keeps the most frequent words; if not set, 2,048 for "bpe" and no
            limit for "word".
        joint: whether source and target of a translation share one vocabulary; if false, each has
            its own, of at most vocab_size ids.
        word_vectors: for "word": text file of pretrained vectors, in the format of word2vec or
            GloVe. They initialize the embeddings of their words; with joint = false, only the
            source embeddings.
    """

    kind: Literal["character", "byte", "word", "bpe", "file", "pretrained"] = "bpe"
    path: str | None = None
    end_of_text: str | None = None
    vocab_size: int | None = None
    joint: bool = True
    word_vectors: str | None = None

    def __post_init__(self) -> None:
        require_types(self)
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
                "a tokenizer of kind 'file' is shared by source and target, got joint=False; "
                "remove joint"
            )
        if self.word_vectors is not None and self.kind != "word":
            raise ConfigError(
                f"word_vectors are for the tokenizer kind 'word', got kind={self.kind!r} and "
                f"word_vectors={self.word_vectors!r}; change one of them"
            )

    @property
    def most_tokens(self) -> int | None:
        """Largest number of ids of a tokenizer that is trained, with the default filled in."""
        return 2048 if self.kind == "bpe" and self.vocab_size is None else self.vocab_size
