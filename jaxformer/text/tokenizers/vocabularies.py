"""Tokenizers of four kinds: characters, bytes, words and byte pairs; and added special tokens."""

from collections.abc import Sequence

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from jaxformer.errors import DataError
from jaxformer.text.tokenizers.spelling import byte_letters
from jaxformer.text.tokenizers.texts import require_texts
from jaxformer.text.tokenizers.tokenizer import Tokenizer
from jaxformer.text.tokenizers.vocabulary import END_OF_TEXT, UNKNOWN

_WORDS = pre_tokenizers.Split(
    tokenizers.Regex(r"\w+(?:['’]\w+)*|[^\w\s]"), behavior="removed", invert=True
)

# Byte pairs are merged only inside one match: an English contraction; a word, number or run of
# signs, each with the space before it; or other whitespace.
_MERGED = r"'(?:[sdmt]|ll|ve|re)| ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"


def train_character(texts: Sequence[str]) -> Tokenizer:
    """Makes a tokenizer with one token per character (code point) of the texts, sorted.

    Args:
        texts: texts that the vocabulary is taken from.

    Returns:
        A tokenizer; its last id is the end of text. To encode a character that is not in `texts`
        is an error.

    Raises:
        DataError: the texts are empty, or have a lone surrogate.

    Example:
        >>> train_character(["banana"]).encode("ban")
        array([1, 0, 2], dtype=int32)
    """
    _require_training_texts(texts)
    characters = sorted(set().union(*texts))
    tokenizer = tokenizers.Tokenizer(models.WordLevel({c: i for i, c in enumerate(characters)}))
    tokenizer.pre_tokenizer = pre_tokenizers.FixedLength(1)
    tokenizer.decoder = decoders.Fuse()
    return _with_end_of_text(tokenizer)


def byte_tokenizer() -> Tokenizer:
    """Makes the tokenizer whose ids are the UTF-8 bytes of the text; it needs no training.

    Returns:
        A tokenizer, lossless for any text. Ids 0 to 255 are the bytes; 256 is the end of text.

    Example:
        >>> byte_tokenizer().encode("€")
        array([226, 130, 172], dtype=int32)
    """
    tokenizer = tokenizers.Tokenizer(models.BPE(byte_letters(), []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _with_end_of_text(tokenizer)


def train_word(texts: Sequence[str], vocab_size: int | None = None) -> Tokenizer:
    """Makes a tokenizer with one token per word and per punctuation character.

    Decoding joins the tokens with spaces, except before closing and after opening punctuation. So
    the spaces and line breaks of the original text are lost.

    Args:
        texts: texts that the vocabulary is taken from.
        vocab_size: largest number of tokens, including the two special ones; the most frequent
            words are kept. All words if not given.

    Returns:
        A tokenizer. Id 0 is the unknown word; then come the words from the most to the least
        frequent (ties in alphabetical order), then the end of text.

    Raises:
        DataError: the texts are empty or have a lone surrogate, or vocab_size is less than 3.

    Example:
        >>> tokenizer = train_word(["to work, for it."])
        >>> tokenizer.decode(tokenizer.encode("it   work, to."))
        'it work, to.'
    """
    _require_training_texts(texts)
    if vocab_size is not None and vocab_size < 3:
        raise DataError(
            "vocab_size of a word tokenizer must be at least 3, for the unknown word, the end of "
            f"text and one word, got {vocab_size}; leave it out to keep every word"
        )
    counter = tokenizers.Tokenizer(models.WordLevel({}))
    counter.pre_tokenizer = _WORDS
    trainer = trainers.WordLevelTrainer(
        vocab_size=2**31 if vocab_size is None else vocab_size - 2, show_progress=False
    )
    counter.train_from_iterator(texts, trainer)
    words: dict[str, int] = counter.get_vocab()
    vocab = {UNKNOWN: 0} | {word: i + 1 for word, i in words.items()}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = _WORDS
    tokenizer.decoder = decoders.Sequence(
        [
            # No word begins with this prefix, so every token but the first gets a space before it.
            decoders.WordPiece(prefix="\n", cleanup=False),
            decoders.Fuse(),
            decoders.Replace(tokenizers.Regex(r" (?=[.,;:!?%)\]}])|(?<=[(\[{]) "), ""),
        ]
    )
    return _with_end_of_text(tokenizer)


def train_bpe(texts: Sequence[str], vocab_size: int) -> Tokenizer:
    """Trains a byte-level BPE tokenizer that splits text into words as GPT-2 does.

    One difference: marks, such as the vowel signs of Indian scripts, stay part of their word.
    GPT-2 splits before and after each.

    Args:
        texts: texts that the merges are learnt from.
        vocab_size: number of tokens, at least 257. You get fewer if no more pairs occur twice.

    Returns:
        A tokenizer, lossless for any text; its last id is the end of text.

    Raises:
        DataError: the texts are empty or have a lone surrogate, or vocab_size is less than 257.

    References:
        Sennrich, Haddow, Birch, Neural Machine Translation of Rare Words with Subword Units, 2016;
        Radford et al., Language Models are Unsupervised Multitask Learners, 2019.

    Example:
        >>> tokenizer = train_bpe(["low lower lowest"], vocab_size=300)
        >>> tokenizer.vocab_size, tokenizer.decode(tokenizer.encode("lowest")[:1])
        (261, 'low')
    """
    _require_training_texts(texts)
    if vocab_size < 257:
        raise DataError(
            "vocab_size of a BPE tokenizer must be at least 257, for the 256 bytes and the end of "
            f"text, got {vocab_size}; use a character tokenizer for a smaller vocabulary"
        )
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(_MERGED), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    # Each merge needs a place in the text, so this is an upper bound. The trainer allocates for it.
    most = 256 + 4 * sum(map(len, texts))
    trainer = trainers.BpeTrainer(
        vocab_size=min(vocab_size - 1, most),  # The end of text is added after.
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _with_end_of_text(tokenizer)


def with_special_tokens(tokenizer: Tokenizer, names: Sequence[str]) -> Tokenizer:
    """Adds special tokens, which are never parsed from text.

    Args:
        tokenizer: tokenizer to add them to; not modified.
        names: names of the tokens. Existing tokens keep their ids.

    Returns:
        A tokenizer with these tokens; new ones have the last ids.

    Example:
        >>> with_special_tokens(byte_tokenizer(), ["<|im_start|>", "<|im_end|>"]).vocab_size
        259
    """
    copy = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    # An ordinary token of that name becomes special and keeps its id.
    added = [name for name in names if copy.token_to_id(name) is None]
    copy.add_special_tokens(list(names))
    extended = Tokenizer(copy, tokenizer.roles)
    new = [extended.special_id(name) for name in added]
    if new != list(range(tokenizer.vocab_size, extended.vocab_size)):
        raise DataError(
            f"new tokens must get the last ids, from {tokenizer.vocab_size} on, got {new}, because "
            "some ids have no token; give the tokenizer a token for every id"
        )
    return extended


def _with_end_of_text(tokenizer: tokenizers.Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens([END_OF_TEXT])
    return Tokenizer(tokenizer)


def _require_training_texts(texts: Sequence[str]) -> None:
    require_texts(texts)
    if not any(text.strip() for text in texts):
        raise DataError(
            f"a tokenizer needs text to train on, got {len(texts)} texts that are all empty or "
            "blank; pass the training documents"
        )
