"""Inputs of a Transformer: tokens and embeddings.

The first part of `transformer_from_scratch`. The document is cited by its line numbers.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from steps import Shown, Step, Table

from jaxformer.config import ModelConfig
from jaxformer.functional import embed
from jaxformer.modules import Embedding
from jaxformer.text import Tokenizer, train_bpe, train_word

PARAGRAPH = (
    "I am new to NLP with deep learning. I like Deep Learning and I like NLP. "
    "I am trying to combine it."
)
WORDS = ["i", "am", "new", "to", "nlp", "with", "deep", "learning"]


def names(kind: str, count: int) -> list[str]:
    """Numbered names from 0: "dim 0", "dim 1" and so on."""
    return [f"{kind} {index}" for index in range(count)]


@functools.cache
def word_tokenizer() -> Tokenizer:
    """One token for every word of the paragraph, in lower case."""
    return train_word([PARAGRAPH.lower()])


def embedding_table(d_model: int, seed: int = 0) -> jax.Array:
    """Random embedding table of the word tokenizer, `[V, D]`."""
    shape = (word_tokenizer().vocab_size, d_model)
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def embed_words(sentence: str, d_model: int) -> jax.Array:
    """Embeddings of a sentence's words, `[T, D]`, always from the same table."""
    tokens = jnp.asarray(word_tokenizer().encode(sentence.lower()))
    return jax.jit(embed)(embedding_table(d_model), tokens)


def show_byte_pairs() -> Shown:
    tokenizer = train_bpe([PARAGRAPH], vocab_size=300)
    sentence = "I am new to NLP with Deep Learning."
    ids = tokenizer.encode(sentence)
    cells = [[repr(tokenizer.decode([token])), str(token)] for token in ids]
    table = Table(["piece", "id"], names("token", len(ids)), cells)
    return Shown(
        "Byte pairs start from the 256 bytes and join the pair that occurs most often, again and "
        f"again; here {tokenizer.vocab_size - 257} joins are learnt from the paragraph. Any text "
        "can be encoded and comes back exactly, so that there is no unknown word. Joins stay "
        "inside a word and the space before it: a token across two words, such as the document's "
        "'new to', does not occur.",
        {"Byte pairs of the sentence": table},
    )


def show_words() -> Shown:
    tokenizer = word_tokenizer()
    known, unknown = tokenizer.encode("i like nlp"), tokenizer.encode("i like chess")
    words = tokenizer.words
    return Shown(
        "Every word of the paragraph gets an id: the most frequent first, then by the alphabet, so "
        "that the ids are the same in every run. The document numbers a Python set of strings, "
        "whose order changes with each start of Python: its printed ids 3, 1, 6 mean nothing "
        f"later. Here 'i like nlp' is {known.tolist()}. A word that was never seen is a KeyError "
        f"there and token {tokenizer.unknown} here: 'i like chess' is {unknown.tolist()}. A full "
        "stop is a token of its own and not thrown away.",
        {"Vocabulary": Table(["id"], list(words), [[token] for token in words.values()])},
    )


def show_embedding() -> Shown:
    vectors = embed_words("I like NLP", 10)
    config = ModelConfig(
        vocab_size=word_tokenizer().vocab_size, max_len=8, num_layers=1, d_model=10, num_heads=1
    )
    tokens = jnp.asarray(word_tokenizer().encode("i like nlp")[None])
    batch, _ = jax.jit(Embedding(config).init_with_output)(jax.random.key(0), tokens)
    shapes = [[str(vectors.shape)], [str(batch.shape)]]
    return Shown(
        "An embedding looks up one row of a table for each token: [T] ids become [T, D] numbers, "
        "and a batch [B, T] becomes [B, T, D]. There is one table, so that a word has the same "
        "vector wherever it occurs; the document draws a new table at every call and gives one "
        "word two vectors. The table is learnt, and scale_embeddings multiplies its vectors by the "
        "root of the width, as the paper does (the document leaves that out).",
        {
            "Embeddings of 'I like NLP'": Table(names("dim", 10), ["i", "like", "nlp"], vectors),
            "Shapes": Table(["shape"], ["one sentence", "a batch of one"], shapes),
        },
    )


STEPS = [
    Step(
        "Byte pair tokens", (30, 38), show_byte_pairs,
        r"(a, b) = \mathrm{arg\,max}_{(a, b)}\ \mathrm{count}(a b), \quad "
        r"a b \to \mathrm{new\ token}",
    ),
    Step(
        "Word tokens", (40, 75), show_words,
        r"\mathrm{id}: \{\mathrm{words}\} \to \{0, 1, \dots, V - 1\}",
    ),
    Step(
        "Embedding", (62, 97), show_embedding,
        r"x_t = E_{\mathrm{id}(t)}, \quad E \in \mathbb{R}^{V \times D}",
    ),
]  # fmt: skip
