"""Tokenizers: text to token ids and back, saved as JSON."""

import functools
import pathlib
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tokenizers

from jaxformer.errors import DataError
from jaxformer.storage import read_regular, write_whole
from jaxformer.text.tokenizers.spelling import continuing_copy, reading_copy
from jaxformer.text.tokenizers.stream_decoder import StreamDecoder
from jaxformer.text.tokenizers.texts import groups_of_size, require_known, require_texts
from jaxformer.text.tokenizers.vocabulary import TokenRoles, Vocabulary

# Characters of a call of the library, which takes about 180 bytes per token while it encodes.
_CALL = 2**21


class Tokenizer(Vocabulary):
    """Turns text into token ids and back; wraps a tokenizer of the `tokenizers` library.

    Special tokens, such as the end of text, are never parsed from text: if a text contains their
    spelling, that is ordinary text. `encode` adds no special tokens (see `surrounding_tokens`). It
    neither truncates nor pads texts, even if the tokenizer's file asks for it.

    Args:
        tokenizer: tokenizer of the library. Its `encode_special_tokens` is set; truncation and
            padding are turned off.
        roles: names of the tokens with a special role, if they differ from jaxformer's own.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> tokenizer = byte_tokenizer()
        >>> tokenizer.encode("né")
        array([110, 195, 169], dtype=int32)
        >>> tokenizer.decode([110, 195, 169, tokenizer.end_of_text])
        'né'
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, roles: TokenRoles = TokenRoles()) -> None:
        # The library does not save this in its JSON.
        tokenizer.encode_special_tokens = True
        tokenizer.no_truncation()
        tokenizer.no_padding()
        super().__init__(tokenizer, roles)
        characters = frozenset(tokenizer.get_vocab(False))
        has_words = isinstance(tokenizer.model, tokenizers.models.WordLevel)
        is_closed = has_words and self.unknown is None and max(map(len, characters)) == 1
        self._characters = characters if is_closed else None

    @functools.cached_property
    def _reading(self) -> tokenizers.Tokenizer:
        """Copy of the tokenizer that encodes texts; made at the first use."""
        return reading_copy(self._tokenizer, self.special_names)

    @functools.cached_property
    def _continuing(self) -> "Tokenizer":
        """Tokenizer of texts that continue another; made at the first use."""
        copy = continuing_copy(self._tokenizer)
        return self if copy is None else type(self)(copy, self.roles).limited_to(self.vocab_size)

    def with_roles(self, roles: TokenRoles) -> "Tokenizer":
        """The same vocabulary with other roles.

        Example:
            >>> model = tokenizers.models.WordLevel({"a": 0, "</s>": 1})
            >>> tokenizer = Tokenizer(tokenizers.Tokenizer(model))
            >>> tokenizer.with_roles(TokenRoles(end_of_text="</s>")).end_of_text
            1
        """
        return type(self)(tokenizers.Tokenizer.from_str(self.to_json()), roles)

    def limited_to(self, num_rows: int) -> "Tokenizer":
        """The same tokenizer, for a model whose table has rows for the first tokens alone.

        Encoding a text that has another token raises DataError, which names the token.

        Example:
            >>> from jaxformer.text import byte_tokenizer
            >>> byte_tokenizer().limited_to(100).encode("xyz")
            Traceback (most recent call last):
            jaxformer.errors.DataError: the model has rows for 100 tokens, got 'x' (id 120) in ...
        """
        if num_rows >= self.vocab_size:
            return self
        limited = self.with_roles(self.roles)
        limited._special = frozenset(i for i in limited._special if i < num_rows)
        limited._vocab_size = num_rows
        return limited

    @property
    def identity(self) -> str:
        """Vocabulary and roles, as text. Tokenizers of the same identity give the same tokens."""
        return f"{self.to_json()}\0{self.roles}"

    def encode(self, text: str) -> np.ndarray:
        """Turns a text into token ids.

        Args:
            text: text of any length.

        Returns:
            int32 [tokens].

        Raises:
            DataError: the text has a lone surrogate, or a character that a character tokenizer
                does not know.

        Example:
            >>> from jaxformer.text import train_character
            >>> train_character(["abba"]).encode("bab")
            array([1, 0, 1], dtype=int32)
        """
        return self.encode_documents([text])[0]

    def encode_documents(self, texts: Sequence[str], *, is_start: bool = True) -> list[np.ndarray]:
        """Turns several texts into token ids, on all cores.

        Args:
            texts: any number of texts.
            is_start: False for texts that continue others: a tokenizer that puts a space before
                each text, as SentencePiece does, puts none before these. If no token spans the
                place where a text is cut, the ids of its parts are the ids of the whole.

        Returns:
            One int32 [tokens] for each text.

        Raises:
            DataError: as for `encode`.

        Example:
            >>> from jaxformer.text import byte_tokenizer
            >>> [ids.tolist() for ids in byte_tokenizer().encode_documents(["a", "bc"])]
            [[97], [98, 99]]
        """
        if not is_start:
            return self._continuing.encode_documents(texts)
        require_known(texts, self._characters)
        ids = []
        for group in groups_of_size(texts, len, _CALL):
            encodings = self._reading.encode_batch_fast(group, add_special_tokens=False)
            ids += [np.array(encoding.ids, np.int32) for encoding in encodings]
        return list(map(self.with_rows, ids))

    def encode_with_special_tokens(self, text: str) -> np.ndarray:
        """Turns a text into token ids; names of special tokens in it become these tokens.

        Use it only for text that you have written, such as that of a chat template. Arguments,
        result and errors are those of `encode`.

        Example:
            >>> from jaxformer.text import byte_tokenizer
            >>> byte_tokenizer().encode_with_special_tokens("a<|endoftext|>")
            array([ 97, 256], dtype=int32)
        """
        require_texts([text])
        names = "|".join(map(re.escape, self.special_names))
        require_known(re.split(names, text) if names else [text], self._characters)
        ids = self._parsing.encode(text, add_special_tokens=False).ids
        return self.with_rows(np.array(ids, np.int32))

    @functools.cached_property
    def _parsing(self) -> tokenizers.Tokenizer:
        """Copy of the tokenizer that finds special tokens in texts; made at the first use."""
        return tokenizers.Tokenizer.from_str(self.to_json())

    def decode(self, ids: npt.ArrayLike) -> str:
        """Turns token ids into text.

        Args:
            ids: integers [tokens]; special tokens, such as the end of text, are skipped.

        Returns:
            The text. Bytes that are not valid UTF-8 become U+FFFD, the replacement character.

        Raises:
            DataError: an id is not an integer, is negative, or is not in the vocabulary.

        Example:
            >>> from jaxformer.text import byte_tokenizer
            >>> byte_tokenizer().decode([104, 105, 256])
            'hi'
        """
        return str(self._tokenizer.decode(self.ordinary_ids(ids)))

    def stream(self) -> StreamDecoder:
        """Incremental decoder, for tokens as they are generated.

        Its `push(ids)` returns the text that is final, `skip(ids)` takes tokens whose text is not
        wanted, such as those of a prompt, and `flush()` returns what was held back.

        Example:
            >>> from jaxformer.text import byte_tokenizer
            >>> stream = byte_tokenizer().stream()
            >>> stream.push([110, 195]), stream.push([169]), stream.flush()
            ('n', 'é', '')
        """
        return StreamDecoder(self)

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """Makes a tokenizer from the JSON of `to_json`.

        Args:
            text: JSON.

        Raises:
            DataError: the text does not describe a tokenizer.

        Example:
            >>> from jaxformer.text import byte_tokenizer
            >>> Tokenizer.from_json(byte_tokenizer().to_json()).end_of_text
            256
        """
        try:
            return cls(tokenizers.Tokenizer.from_str(text))
        except Exception as error:  # The library raises nothing more specific.
            raise DataError(f"not a tokenizer in JSON: {error}") from error

    def save(self, path: str | pathlib.Path) -> None:
        """Writes the tokenizer to a JSON file, which `load` and other tools read.

        Args:
            path: path of the file; an existing file is replaced atomically.

        Raises:
            OSError: the file cannot be written, for example because the disk is full.

        Example:
            >>> from jaxformer.text import byte_tokenizer
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     byte_tokenizer().save(f"{folder}/tokenizer.json")
            ...     Tokenizer.load(f"{folder}/tokenizer.json").vocab_size
            257
        """
        write_whole(path, self.to_json())

    @classmethod
    def load(cls, path: str | pathlib.Path) -> "Tokenizer":
        """Reads a file that `save` wrote.

        Args:
            path: path of the file.

        Raises:
            DataError: the file is missing, or is not a tokenizer; the message names it.

        Example:
            >>> Tokenizer.load("missing.json")
            Traceback (most recent call last):
            jaxformer.errors.DataError: missing.json: cannot be read: No such file or directory
        """
        try:
            return cls.from_json(read_regular(path).decode("utf-8-sig"))
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:  # UnicodeDecodeError and DataError.
            raise DataError(f"{path}: {error}") from error
