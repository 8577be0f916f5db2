"""The tokens of a vocabulary: number, roles, names, words, bytes and texts."""

import dataclasses
import functools

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import models

from jaxformer.errors import DataError
from jaxformer.text.tokenizers.spelling import (
    MARKED_SPACE,
    SPACE,
    byte_letters,
    fallback_byte,
    token_spelling,
)
from jaxformer.text.tokenizers.surrounding_tokens import SurroundingTokens, template_tokens

END_OF_TEXT = "<|endoftext|>"
UNKNOWN = "<|unknown|>"
MASK = "<|mask|>"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenRoles:
    """Special tokens of a vocabulary that was made elsewhere.

    Args:
        end_of_text: name of the token that ends a document, such as "</s>".
        mask: name of the mask token, such as "[MASK]".
        surrounded: whether the model expects the special tokens of the tokenizer's post-processor
            around every text, such as [CLS] and [SEP].
    """

    end_of_text: str = END_OF_TEXT
    mask: str = MASK
    surrounded: bool = False


class Vocabulary:
    """The vocabulary of a tokenizer: the half of `Tokenizer` that does not encode or decode."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, roles: TokenRoles) -> None:
        self._tokenizer, self.roles = tokenizer, roles
        vocab: dict[str, int] = tokenizer.get_vocab()
        # A tokenizer made elsewhere may have ids without a token; `limited_to` sets a smaller size.
        self._vocab_size = 1 + max(vocab.values())
        added = tokenizer.get_added_tokens_decoder()
        named = {tokenizer.token_to_id(name) for name in (roles.end_of_text, roles.mask)}
        special = {token_id for token_id, token in added.items() if token.special}
        self._special = frozenset(
            special | {token_id for token_id in named if token_id is not None}
        )
        self._spelling = token_spelling(tokenizer)

    def to_json(self) -> str:
        """The tokenizer in the JSON format of the `tokenizers` library.

        Example:
            >>> from jaxformer.text import Tokenizer, byte_tokenizer
            >>> Tokenizer.from_json(byte_tokenizer().to_json()).vocab_size
            257
        """
        return str(self._tokenizer.to_str(pretty=True))

    @property
    def vocab_size(self) -> int:
        """Number of ids; every id is smaller."""
        return self._vocab_size

    @property
    def end_of_text(self) -> int | None:
        """Id of the token that ends a document, if there is one."""
        return self._id_of(self.roles.end_of_text)

    @property
    def unknown(self) -> int | None:
        """Id of the unknown word, if the vocabulary has one."""
        model = self._tokenizer.model
        has_words = isinstance(model, models.WordLevel)
        return self._tokenizer.token_to_id(model.unk_token) if has_words else None

    @property
    def mask(self) -> int | None:
        """Id of the mask token, if there is one."""
        return self._id_of(self.roles.mask)

    def _id_of(self, name: str) -> int | None:
        """Id of a token by its name; None if there is none, or the model has no row for it."""
        token_id: int | None = self._tokenizer.token_to_id(name)
        return None if token_id is None or token_id >= self._vocab_size else token_id

    def special_id(self, name: str) -> int | None:
        """Id of a special token by its name, if there is one."""
        token_id: int | None = self._tokenizer.token_to_id(name)
        return token_id if token_id in self._special else None

    def token_name(self, token_id: int) -> str:
        """Name of a token in the vocabulary; DataError if no token has this id."""
        name: str | None = self._tokenizer.id_to_token(token_id)
        if name is None:
            raise DataError(
                f"token ids must be ids of the {self._vocab_size} tokens, got {token_id}; use the "
                "tokenizer of the model"
            )
        return name

    @property
    def special(self) -> frozenset[int]:
        """Ids that stand for no text: special tokens and the unknown word."""
        return self._special if self.unknown is None else self._special | {self.unknown}

    @property
    def special_names(self) -> list[str]:
        """Names of the special tokens, in the order of their ids."""
        return [self.token_name(token_id) for token_id in sorted(self._special)]

    @functools.cached_property
    def surrounding_tokens(self) -> SurroundingTokens:
        """Special tokens that the model reads around every text; none unless `roles.surrounded`.

        They come from the tokenizer's own post-processor, such as [CLS] and [SEP], or an end of
        text. `surrounding_tokens.around(ids)` puts them around the tokens of a text.

        Example:
            >>> from jaxformer.text import byte_tokenizer
            >>> byte_tokenizer().surrounding_tokens
            SurroundingTokens(before=(), after=())
        """
        return template_tokens(self._tokenizer) if self.roles.surrounded else SurroundingTokens()

    @property
    def words(self) -> dict[str, int]:
        """The tokens of a word or character tokenizer with their ids, without special tokens.

        Example:
            >>> from jaxformer.text import train_word
            >>> train_word(["to be or not to be"]).words
            {'be': 1, 'to': 2, 'not': 3, 'or': 4}
        """
        vocab: dict[str, int] = self._tokenizer.get_vocab()
        special = self.special
        words = sorted(vocab, key=vocab.__getitem__)
        return {word: vocab[word] for word in words if vocab[word] not in special}

    @property
    def has_leading_spaces(self) -> bool:
        """Whether some tokens are a word with a space before it, as in BPE."""
        spaces = {"byte letters": SPACE, "marked spaces": MARKED_SPACE}
        space = spaces.get(self._spelling)
        return any(len(token) > 1 and token[0] == space for token in self._tokenizer.get_vocab())

    def byte_length(self, token_id: int) -> int:
        """UTF-8 bytes of the text of a token; 0 for special tokens and the unknown word."""
        return 0 if token_id in self.special else len(self._token_bytes(token_id))

    def _token_bytes(self, token_id: int) -> bytes:
        """The text of an ordinary token in UTF-8, or the byte that it stands for."""
        token: str = self._tokenizer.id_to_token(token_id) or ""
        letters = byte_letters()
        if self._spelling == "byte letters" and letters.keys() >= set(token):
            return bytes(letters[letter] for letter in token)
        if self._spelling == "marked spaces":
            byte = fallback_byte(token)
            return token.replace(MARKED_SPACE, " ").encode() if byte is None else bytes([byte])
        return token.encode()

    def is_fallback_byte(self, token_id: int) -> bool:
        """Whether a token is a SentencePiece byte token, such as <0x0A>."""
        token = self._tokenizer.id_to_token(token_id) or ""
        return self._spelling == "marked spaces" and fallback_byte(token) is not None

    def byte_lengths(self) -> np.ndarray | None:
        """Counts the UTF-8 bytes of text that each token stands for.

        Returns:
            int64 [vocab_size]. None for words and WordPiece: whether a space stands between two
            tokens depends on both of them.

        Example:
            >>> from jaxformer.text import byte_tokenizer, train_word
            >>> byte_tokenizer().byte_lengths()[[97, 256]], train_word(["a b"]).byte_lengths()
            (array([1, 0]), None)
        """
        if self._spelling == "joined":
            return None
        return np.array([self.byte_length(i) for i in range(self._vocab_size)], np.int64)

    def token_texts(self, ids: npt.ArrayLike) -> list[str]:
        r"""Text of each token by itself.

        Args:
            ids: integers [tokens].

        Returns:
            The text of each token, with its spaces; the name of a special token. A byte that is
            only a part of a character is written as \xc3.

        Raises:
            DataError: an id is not an integer, is negative, or is not in the vocabulary.

        Example:
            >>> from jaxformer.text import byte_tokenizer
            >>> byte_tokenizer().token_texts([110, 195, 169, 256])
            ['n', '\\xc3', '\\xa9', '<|endoftext|>']
        """
        return [
            self.token_name(token_id)
            if token_id in self._special
            else self._token_bytes(token_id).decode("utf-8", "backslashreplace")
            for token_id in self._checked(ids)
        ]

    def with_rows(self, ids: np.ndarray) -> np.ndarray:
        """The ids [tokens]; DataError for a token without a row in the model's table."""
        without_row = ids[ids >= self._vocab_size]
        if without_row.size:
            token_id = int(without_row[0])
            raise DataError(
                f"the model has rows for {self._vocab_size} tokens, got "
                f"{self._tokenizer.id_to_token(token_id)!r} (id {token_id}) in a text; remove it"
            )
        return ids

    def ordinary_ids(self, ids: npt.ArrayLike) -> list[int]:
        """Checks token ids and removes special tokens, which have no text.

        Args:
            ids: integers [tokens].

        Raises:
            DataError: an id is not an integer, is negative, or is not in the vocabulary.

        Example:
            >>> from jaxformer.text import byte_tokenizer
            >>> byte_tokenizer().ordinary_ids([104, 105, 256])
            [104, 105]
        """
        return [token_id for token_id in self._checked(ids) if token_id not in self._special]

    def _checked(self, ids: npt.ArrayLike) -> list[int]:
        array = np.asarray(ids)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise DataError(
                f"token ids must be integers [tokens], got {array.dtype} of shape {array.shape}; "
                "decode one sequence at a time"
            )
        checked: list[int] = array.tolist()
        for token_id in checked:
            if not 0 <= token_id < self._vocab_size:
                raise DataError(
                    f"token ids must be at least 0 and less than vocab_size={self._vocab_size}, "
                    f"got {token_id}; decode with the tokenizer that the ids were made with"
                )
        return checked
