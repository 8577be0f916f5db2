import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.config import ModelConfig, SamplingConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.inference import decoding_loop, generate, generate_stream
from jaxformer.inference.token_rules import TokenRules
from jaxformer.models import Decoder
from jaxformer.modules.stacked_layers import split_layers
from tests import option_sets
from tests.inference.by_hand import greedy, next_logits, repeated_by_hand

VOCAB = 13
CONFIG = ModelConfig(
    vocab_size=VOCAB, max_len=24, num_layers=2, d_model=16, num_heads=2, init_std=0.5
)
GREEDY = SamplingConfig(temperature=0)
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9]]
RNG = jax.random.key(7)
NEW = 12  # mostly, since another number is another program


@pytest.fixture(scope="module")
def params():
    return option_sets.random_params(CONFIG)


@pytest.fixture(scope="module")
def full_logits(params):
    return next_logits(CONFIG, params)


def continue_(params, prompts=PROMPTS, new=NEW, model=Decoder(CONFIG), **options):  # noqa: B008
    options = {"rng": RNG, "sampling": GREEDY, "max_new_tokens": new, **options}
    rows = generate(model, params, prompts, **options)
    return [row.tolist() for row in rows]


@pytest.mark.essential
def test_greedy_equals_a_full_pass_per_token(params, full_logits):
    expected = [greedy(full_logits, prompt, NEW) for prompt in PROMPTS]
    assert continue_(params) == expected
    assert len({tuple(row) for row in expected}) == 3


@pytest.mark.parametrize("name", option_sets.OPTIONS)
def test_every_option_continues_as_a_full_pass_would(name):
    config = option_sets.config(name)
    params = option_sets.random_params(config)
    rows = generate(Decoder(config), params, PROMPTS, max_new_tokens=6, sampling=GREEDY, rng=RNG)
    for prompt, new in zip(PROMPTS, rows, strict=True):
        tokens = np.array([[*prompt, *new]])
        logits = option_sets.reference_logits(config, params, tokens)[0]
        assert new.tolist() == logits.argmax(-1)[len(prompt) - 1 : -1].tolist()


def test_repetition_penalty_counts_prompt_and_new_tokens(params, full_logits):
    sampling = dataclasses.replace(GREEDY, repetition_penalty=1.7)

    def penalize(logits, tokens):
        for token in set(tokens):
            logits[token] *= 1 / 1.7 if logits[token] > 0 else 1.7

    expected = [greedy(full_logits, prompt, NEW, penalize) for prompt in PROMPTS]
    assert continue_(params, sampling=sampling) == expected != continue_(params)


@pytest.mark.parametrize("size", [1, 2])
def test_ngrams_of_prompt_and_new_tokens_do_not_repeat(params, full_logits, size):
    prompts = [[1, 2, 3, 1], [4], [5, 6]]
    sampling = dataclasses.replace(GREEDY, no_repeat_ngram_size=size)

    def rule_out(logits, tokens):
        logits[sorted(repeated_by_hand(tokens, size))] = -np.inf

    expected = [greedy(full_logits, prompt, 8, rule_out) for prompt in prompts]
    rows = continue_(params, prompts, new=8, sampling=sampling)
    assert rows == expected != [row[:8] for row in continue_(params, prompts)]
    for prompt, new in zip(prompts, rows, strict=True):
        row = [*prompt, *new]
        pairs = [tuple(row[i : i + size]) for i in range(len(row) - size + 1)]
        assert len(pairs[4:]) == len(set(pairs[4:]))


def test_row_without_tokens_that_do_not_repeat_is_reported(params):
    sampling = dataclasses.replace(GREEDY, no_repeat_ngram_size=1)
    message = "at new token 12 of row 0; .* or no_repeat_ngram_size=1 leaves no token"
    with pytest.raises(DataError, match=message):
        continue_(params, [[1]], new=20, sampling=sampling)


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({"min_new_tokens": 5}, [5, 5, 5]),
        ({"min_length": 8}, [5, 7, 3]),
        ({"min_length": 20, "min_new_tokens": 2}, [2, 2, 2]),
    ],
)
def test_stop_tokens_come_behind_the_least_number_of_tokens(params, full_logits, options, least):
    free = continue_(params)
    stops = sorted({row[0] for row in free} | {row[1] for row in free})
    sampling = dataclasses.replace(GREEDY, **options)
    rows = continue_(params, sampling=sampling, stop_tokens=stops)
    for prompt, row, count in zip(PROMPTS, rows, least, strict=True):
        shortest = len(prompt) + count

        def rule_out(logits, tokens, shortest=shortest):
            if len(tokens) < shortest:
                logits[stops] = -np.inf

        assert row == greedy(full_logits, prompt, NEW, rule_out, stop_tokens=stops)


def test_tokens_of_a_row_do_not_depend_on_other_rows(params):
    sampling = SamplingConfig(top_k=9, top_p=0.95)
    together = continue_(params, sampling=sampling)
    for row, prompt in enumerate(PROMPTS):
        prompts = [[row + 5]] * 3
        prompts[row] = prompt
        assert continue_(params, prompts, sampling=sampling)[row] == together[row]
    assert continue_(params, rng=jax.random.key(8), sampling=sampling) != together


def test_one_key_gives_every_row_its_own(params):
    rows = continue_(params, [[1]] * 3, sampling=SamplingConfig())
    assert len({tuple(row) for row in rows}) == 3
    assert rows == continue_(params, [[1]] * 3, sampling=SamplingConfig())


@pytest.mark.essential
def test_row_ends_with_its_stop_token_and_others_go_on(params):
    free = continue_(params)
    stop = free[0][2]
    ends = [row.index(stop) + 1 if stop in row else len(row) for row in free]
    assert ends[0] < NEW and max(ends) > ends[0]  # or the test shows nothing
    stopped = continue_(params, stop_tokens=[stop])
    assert stopped == [row[:end] for row, end in zip(free, ends, strict=True)]


def test_forbidden_tokens_are_never_generated(params, full_logits):
    free = continue_(params)[0]
    forbidden = sorted({*free[:2]})
    allowed = continue_(params, forbidden_tokens=forbidden)[0]

    def rule_out(logits, tokens):
        logits[forbidden] = -np.inf

    assert allowed == greedy(full_logits, PROMPTS[0], NEW, rule_out) and allowed[0] != free[0]
    with pytest.raises(ConfigError, match=r"forbidden_tokens\[0\] must be an int in 0 .. 12"):
        continue_(params, forbidden_tokens=[VOCAB])


def stream(params, prompts, new, **options):
    options |= {"max_new_tokens": new, "rng": RNG, "sampling": GREEDY}
    return list(generate_stream(Decoder(CONFIG), params, prompts, **options))


@pytest.mark.essential
@pytest.mark.parametrize("chunk_size", [1, 5, 64])
def test_stream_gives_the_same_tokens_in_chunks(params, chunk_size):
    stop = continue_(params)[1][4]
    chunks = stream(params, PROMPTS, NEW, stop_tokens=[stop], chunk_size=chunk_size)
    assert all(len(row) <= chunk_size for chunk in chunks for row in chunk)
    rows = [np.concatenate(pieces).tolist() for pieces in zip(*chunks, strict=True)]
    assert rows == continue_(params, stop_tokens=[stop])


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a decision of XLA's CPU compiler")
def test_loop_of_one_row_is_not_compiled_for_one_core(params):
    model, row = Decoder(CONFIG), jnp.ones((1, 4), jnp.int32)
    prefill = functools.partial(decoding_loop.prefill, model, capacity=8, track_history=False)
    prompts = decoding_loop.Prompts(row, jnp.array([4]), RNG[None], None, None)
    state = jax.eval_shape(prefill, params, prompts)
    lowered = decoding_loop.decode.lower(
        model, split_layers(params), state, 2, chunk_size=2, sampling=GREEDY,
        rules=TokenRules(end_tokens=()),
    )  # fmt: skip
    compiled = lowered.compile().as_text()
    assert " while(" in compiled and "small_call" not in compiled


def test_generation_stops_when_all_rows_have(params):
    stop = continue_(params, [[1]], new=1)[0][0]
    chunks = stream(params, [[1]], 20, stop_tokens=[stop], chunk_size=5)
    assert [[row.tolist() for row in chunk] for chunk in chunks] == [[[stop]]]


def test_prompt_and_new_tokens_may_fill_the_context(params, full_logits):
    prompt = [3] * 20
    assert continue_(params, [prompt], new=4) == [greedy(full_logits, prompt, 4)]


def test_nan_logits_are_reported_by_step_and_row():
    """The embedding of a token that is generated on the way is NaN."""
    model = Decoder(dataclasses.replace(CONFIG, tied_embeddings=False))
    params = option_sets.random_params(model.config, seed=1)
    options = {"max_new_tokens": 6, "rng": RNG, "sampling": GREEDY}
    rows = [row.tolist() for row in generate(model, params, PROMPTS, **options)]
    damaged = next(t for t in rows[1][1:5] if t not in [*sum(PROMPTS, []), *rows[0]])
    step = rows[1].index(damaged) + 1  # the first that is generated from it
    table = params["embedding"]["embedding"].at[damaged].set(jnp.nan)
    params["embedding"] |= {"embedding": table}
    with pytest.raises(
        DataError, match=f"logits are NaN or .* at new token {step} of row 1; it has"
    ):
        generate(model, params, PROMPTS, **options)
