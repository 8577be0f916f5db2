"""What decoding should choose, by plain Python and full forward passes."""

import jax
import numpy as np

from jaxformer.models import Decoder


def next_logits(config, params):
    """Logits of the token after given ones, by a full forward pass, padded to one shape."""
    apply = jax.jit(lambda tokens: Decoder(config).apply({"params": params}, tokens).logits[0])

    def at_end(tokens):
        padded = np.zeros((1, config.max_len), np.int32)
        padded[0, : len(tokens)] = tokens
        return np.array(apply(padded)[len(tokens) - 1])

    return at_end


def repeated_by_hand(tokens, size):
    """Next tokens with which the newest n tokens would be an n-gram that is there already."""
    newest = tokens[len(tokens) - size + 1 :] if size > 1 else []
    places = range(len(tokens) - size + 1)
    return {tokens[i + size - 1] for i in places if tokens[i : i + size - 1] == newest}


def greedy(logits_of, prompt, count, change=lambda logits, tokens: None, stop_tokens=()):
    """New tokens, each the most likely by `logits_of(tokens)`, which `change` may edit before."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + count and (
        len(tokens) == len(prompt) or tokens[-1] not in stop_tokens
    ):
        logits = logits_of(tokens).copy()
        change(logits, tokens)
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]
