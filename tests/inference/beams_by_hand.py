"""Random models, and beam search of them by lists of hypotheses in float64."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.config import BeamSearchConfig
from jaxformer.inference import beam_search

SETTINGS = {field.name for field in dataclasses.fields(BeamSearchConfig)}
NODES = 97  # the random models' states; a prime, so that states depend on the whole prefix
END = 1


def random_tables(seed, batch, vocab, end_bias=0.0):
    """Logits [B, NODES, V] of random models; a row's state after a prefix is its node."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(batch, NODES, vocab)).astype(np.float32)
    logits[..., END] += end_bias
    impossible = rng.random(logits.shape) < 0.15
    impossible[: batch // 2] = False
    return np.where(impossible, -np.inf, logits).astype(np.float32)


def next_node(node, token):
    return (node * 31 + token * 7 + 1) % NODES


def log_softmax(logits):
    """In float64; where every logit is -inf, so is every log-probability."""
    logits = np.asarray(logits, np.float64)
    largest = logits.max(-1, keepdims=True)
    shifted = logits - np.where(np.isneginf(largest), 0, largest)
    with np.errstate(divide="ignore"):
        return shifted - np.where(
            np.isneginf(largest), 0, np.log(np.exp(shifted).sum(-1, keepdims=True))
        )


def search_with(step, cache, start, **options):
    """Beam search with settings and other options in one dict."""
    settings = {name: options.pop(name) for name in SETTINGS & options.keys()}
    return beam_search(step, cache, start, search=BeamSearchConfig(**settings), **options)


@functools.cache
def searcher(**options):
    @jax.jit
    def search(tables, start):
        def step(tokens, cache):
            node = next_node(cache["node"], tokens)
            logits = jnp.asarray(tables)[cache["row"], node]
            return logits, {"row": cache["row"], "node": node}

        zeros = jnp.zeros_like(start)
        cache = {"row": jnp.arange(len(start)), "node": zeros}
        return search_with(step, cache, start, **{"end_tokens": [END], **options})

    return lambda *arguments: jax.tree.map(np.asarray, search(*arguments))


def hypotheses(beams, row):
    """The hypotheses of a row as (tokens, score), those that there are."""
    return [
        (tuple(tokens[:length].tolist()), score)
        for tokens, length, score in zip(
            beams.tokens[row], beams.lengths[row], beams.scores[row], strict=True
        )
        if length
    ]


def assert_same_hypotheses(beams, row, expected):
    got = hypotheses(beams, row)
    assert [tokens for tokens, _ in got] == [tokens for tokens, _ in expected]
    np.testing.assert_allclose(
        [score for _, score in got], [score for _, score in expected], rtol=1e-5, atol=1e-6
    )


def everything(
    table, start, max_new_tokens, length_penalty, count, ruled_out=lambda tokens: (), rescale=False
):
    """Scores every hypothesis, in float64; the best `count` of them.

    ruled_out: tokens that may not follow others; their probabilities go to the others if `rescale`.
    """
    log_probs, finished = log_softmax(table), []
    running = [((), next_node(0, start), 0.0)]
    for length in range(1, max_new_tokens + 1):
        longer = []
        for tokens, node, total in running:
            following = log_probs[node].copy()
            following[list(ruled_out([start, *tokens]))] = -np.inf
            if rescale:
                following = log_softmax(following)
            for token, log_prob in enumerate(following):
                if np.isneginf(log_prob):
                    continue
                new = (*tokens, token)
                if token == END or length == max_new_tokens:
                    finished.append((new, (total + log_prob) / length**length_penalty))
                else:
                    longer.append((new, next_node(node, token), total + log_prob))
        running = longer
    return sorted(finished, key=lambda item: -item[1])[:count]


def by_hand(table, start, beam_size, max_new_tokens, length_penalty, early_stopping, ends=(END,)):
    """Beam search of one row in float64; early_stopping=None goes on to the longest."""
    log_probs, finished = log_softmax(table), []
    running = [((), next_node(0, start), 0.0)]
    for length in range(1, max_new_tokens + 1):
        candidates = [
            ((*tokens, token), next_node(node, token), total + log_probs[node, token])
            for tokens, node, total in running
            for token in range(table.shape[1])
            if log_probs[node, token] > -np.inf
        ]
        candidates = sorted(candidates, key=lambda item: -item[2])[: (1 + len(ends)) * beam_size]
        over = [length == max_new_tokens or item[0][-1] in ends for item in candidates]
        finished += [
            (tokens, total / length**length_penalty)
            for (tokens, _, total), ends in zip(candidates[:beam_size], over, strict=False)
            if ends
        ]
        finished = sorted(finished, key=lambda item: -item[1])[:beam_size]
        running = [item for item, ends in zip(candidates, over, strict=True) if not ends]
        running = running[:beam_size]
        if not running:
            break
        if len(finished) < beam_size or early_stopping is None:
            continue
        longest = max_new_tokens if early_stopping == "never" and length_penalty > 0 else length
        attainable = running[0][2] / longest**length_penalty
        if early_stopping is True or attainable <= finished[-1][1]:
            break
    return finished
