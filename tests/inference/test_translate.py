import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.config import BeamSearchConfig, ModelConfig, SamplingConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.inference import generate, translate, translate_stream
from jaxformer.models import Decoder, EncoderDecoder
from tests.inference.random_translators import (
    END,
    SEPARATE,
    SHARED,
    START,
    VOCAB,
    log_prob,
    random_params,
)

SOURCES = [
    [3, 3, 3], [4, 5] * 9, [7], [*range(2, 13), 2, 3, 4, 5, 6], [8, 9, 10, 2, 2],
    [6, 5, 4] * 6 + [2],
]  # fmt: skip
PENALTY = 0.6
GREEDY = BeamSearchConfig(beam_size=1)
BEST = {
    "search": BeamSearchConfig(beam_size=3, num_best=3, length_penalty=PENALTY),
    "rows": 3,
}


def run(function, sources=SOURCES, config=SHARED, params=None, **options):
    params = random_params(config) if params is None else params
    options = {"start_token": START, "end_tokens": [END]} | options
    return function(EncoderDecoder(config), params, sources, **options)


def plain(hypotheses):
    return [(hypothesis.tokens.tolist(), hypothesis.finished) for hypothesis in hypotheses]


def assert_same(got, expected):
    assert [plain(row) for row in got] == [plain(row) for row in expected]
    for rows in zip(got, expected, strict=True):
        scores = ([hypothesis.score for hypothesis in row] for row in rows)
        np.testing.assert_allclose(*scores, rtol=1e-5)


@pytest.fixture(scope="module")
def best():
    return run(translate, **BEST)


@pytest.mark.thorough
def test_the_examples_tell_sources_apart_and_end_in_both_ways(best):
    assert len({str(plain(row)) for row in best}) == len(SOURCES)
    hypotheses = [hypothesis for row in best for hypothesis in row]
    assert {hypothesis.finished for hypothesis in hypotheses} == {True, False}
    lengths = {len(hypothesis.tokens) for hypothesis in hypotheses}
    assert lengths >= {0, 1, 48, 50}  # of sources up to 16 and 32 tokens


@pytest.mark.thorough
def test_batches_give_what_sources_give_one_by_one(best):
    assert_same([row for source in SOURCES for row in run(translate, [source], **BEST)], best)


def assert_scores_are_those_of_a_full_pass(rows, config, sources, num_tokens=VOCAB):
    for source, row in zip(sources, rows, strict=True):
        assert len({*map(str, plain(row))}) == 3
        for hypothesis in row:
            assert END not in hypothesis.tokens
            tokens = [*hypothesis.tokens.tolist(), *[END] * hypothesis.finished]
            expected = log_prob(config, source, tokens, num_tokens) / len(tokens) ** PENALTY
            np.testing.assert_allclose(hypothesis.score, expected, rtol=1e-5)
        scores = [hypothesis.score for hypothesis in row]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.thorough
def test_scores_are_those_of_a_full_pass_best_first(best):
    assert_scores_are_those_of_a_full_pass(best, SHARED, SOURCES)


def test_source_has_a_vocabulary_of_its_own_and_padded_targets_are_not_chosen():
    sources = [[18 - token for token in source] for source in SOURCES]
    rows = run(translate, sources, SEPARATE, **BEST, vocab_size=9)
    assert max(hypothesis.tokens.max(initial=0) for row in rows for hypothesis in row) < 9
    assert_scores_are_those_of_a_full_pass(rows, SEPARATE, sources, num_tokens=9)
    with pytest.raises(DataError, match=r"0 \.\. 18, got 19 at index 1 of source 1"):
        run(translate, [[18], [2, 19]], SEPARATE)


def test_one_beam_is_greedy_generation():
    sources = [source for source in SOURCES if len(source) <= 16]
    rows = run(translate, sources, search=GREEDY, rows=3, max_new_tokens=9)
    greedy = generate(
        EncoderDecoder(SHARED), random_params(SHARED), [[START]] * len(sources), sources=sources,
        max_new_tokens=9, rng=jax.random.key(0), sampling=SamplingConfig(temperature=0),
        stop_tokens=[END],
    )  # fmt: skip
    got = [[*row[0].tokens.tolist(), *[END] * row[0].finished] for row in rows]
    assert got == [tokens.tolist() for tokens in greedy]
    assert max(map(len, got)) == 9


@pytest.mark.thorough
def test_hypotheses_repeat_no_ngram_and_are_long_enough(best):
    search = dataclasses.replace(BEST["search"], no_repeat_ngram_size=2, min_new_tokens=49)
    rows = run(translate, SOURCES[:1], search=search)
    for hypothesis in rows[0]:  # of 50 tokens at most, though the source is short
        tokens = [START, *hypothesis.tokens.tolist()]
        pairs = list(zip(tokens, tokens[1:], strict=False))
        assert len(set(pairs)) == len(pairs) >= 49
    assert any(len(set(hypothesis.tokens[:-1].tolist())) < 9 for hypothesis in best[0])


def test_source_whose_every_translation_is_ruled_out_is_named():
    search = BeamSearchConfig(beam_size=2, no_repeat_ngram_size=1, min_new_tokens=20)
    with pytest.raises(DataError, match="source 0 has no translation .* no_repeat_ngram_size=1"):
        run(translate, SOURCES[:1], search=search, max_new_tokens=30)


def test_model_trained_with_the_kernel_of_a_gpu_translates_without_one():
    bfloat16 = dataclasses.replace(SHARED, dtype="bfloat16")
    cudnn = dataclasses.replace(bfloat16, attention_implementation="cudnn")
    options = {"search": GREEDY, "max_new_tokens": 4}
    expected = run(translate, SOURCES[:1], bfloat16, random_params(SHARED), **options)
    assert_same(run(translate, SOURCES[:1], cudnn, random_params(SHARED), **options), expected)


@pytest.mark.thorough
def test_stream_yields_batches_of_like_length_the_longest_first(best):
    batches = list(run(translate_stream, **BEST))
    assert [[index for index, _ in batch] for batch in batches] == [[5, 1], [3, 4, 0], [2]]
    rows = dict(pair for batch in batches for pair in batch)
    assert_same([rows[index] for index in range(len(SOURCES))], best)


def test_no_sources_have_no_translations():
    assert run(translate, []) == []


def test_damaged_parameters_are_reported():
    params = jax.tree.map(lambda leaf: leaf * jnp.nan, random_params(SHARED))
    with pytest.raises(DataError, match="logits are NaN or infinite for source 0; it has diverged"):
        run(translate, SOURCES[:1], params=params, **BEST)


@pytest.mark.parametrize(
    ("sources", "options", "error", "message"),
    [
        ([[2], []], {}, DataError, "source 1 is empty"),
        ([[2], [VOCAB, 3]], {}, DataError, r"in 0 \.\. 12, got 13 at index 0 of source 1"),
        ([[2, -1]], {}, DataError, r"got -1 at index 1 of source 0"),
        ([[2], [3] * 51], {}, DataError, "at most max_len=50 tokens, got 51 in source 1"),
        ([[2]], {"start_token": VOCAB}, DataError, r"start_token must be in 0 \.\. 12, got 13"),
        ([[2]], {"end_tokens": [VOCAB]}, ConfigError, "end_token"),
        ([[2]], {"max_new_tokens": 51}, DataError, r"in 1 \.\. max_len=50, got 51"),
        ([[2]], {"max_new_tokens": 0}, DataError, "got 0"),
        ([[2]], {"rows": 0}, ConfigError, "rows must be an int at least 1, got 0"),
        ([[2]], {"vocab_size": VOCAB + 1}, ConfigError, r"in 1 \.\. 13, got 14"),
        ([[2]], {"forbidden_tokens": 3}, ConfigError, "must be a list of token ids, got 3"),
        ([[2]], {"search": None}, ConfigError, "search must be a BeamSearchConfig, got None"),
        ([[2]], {"params": {"params": {}}}, ConfigError, "params must be only the parameters"),
    ],
)
def test_impossible_requests_are_refused(sources, options, error, message):
    with pytest.raises(error, match=message):
        run(translate, sources, **options)


def test_decoders_do_not_translate():
    config = ModelConfig(vocab_size=VOCAB, max_len=8, num_layers=1, d_model=4, num_heads=2)
    with pytest.raises(ConfigError, match="needs an EncoderDecoder, got a Decoder"):
        translate(Decoder(config), {}, SOURCES, start_token=START, end_tokens=[END])
