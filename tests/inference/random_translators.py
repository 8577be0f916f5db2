"""Encoder-decoders with random parameters, and their log-probabilities by full forward passes."""

import functools

import jax
import numpy as np

from jaxformer.config import ModelConfig, RelativeConfig
from jaxformer.models import EncoderDecoder
from tests import option_sets

START, END, VOCAB = 0, 1, 13
SHARED = ModelConfig(
    architecture="encoder_decoder", vocab_size=VOCAB, max_len=50, num_layers=2,
    num_encoder_layers=1, d_model=16, num_heads=2, init_std=0.4, tied_embeddings=False,
)  # fmt: skip
SEPARATE = ModelConfig(
    architecture="encoder_decoder", vocab_size=VOCAB, source_vocab_size=19, max_len=50,
    num_layers=1, d_model=12, num_heads=6, num_kv_heads=3,
    positions=RelativeConfig(num_buckets=6, max_distance=7), norm_position="post",
    init_std=0.4, tied_embeddings=False,
)  # fmt: skip


@functools.cache
def random_params(config, seed=1):
    return option_sets.random_params(config, seed, EncoderDecoder)


@functools.cache
def _full_pass(config):
    def logits(params, source, source_length, tokens):
        model = EncoderDecoder(config)
        return model.apply({"params": params}, source, tokens, source_lengths=source_length).logits

    return jax.jit(logits)


def full_logits(config, source, target):
    """Float64 logits `[T, V]` after each token of one target, padded to compile once."""
    padded = np.zeros((2, 1, config.max_len), np.int32)
    padded[0, 0, : len(source)], padded[1, 0, : len(target)] = source, target
    logits = _full_pass(config)(
        random_params(config), padded[0], np.array([len(source)], np.int32), padded[1]
    )
    return np.asarray(logits, np.float64)[0, : len(target)]


def log_prob(config, source, tokens, num_tokens=VOCAB):
    """Log-probability of all the tokens after the start token, of the first `num_tokens` ids."""
    logits = full_logits(config, source, [START, *tokens[:-1]])[:, :num_tokens]
    chosen = logits[np.arange(len(tokens)), tokens]
    return (chosen - np.log(np.exp(logits).sum(-1))).sum()
