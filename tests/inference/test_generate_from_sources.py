import dataclasses

import jax
import numpy as np
import pytest

from jaxformer.config import ModelConfig, SamplingConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.inference import generate
from jaxformer.models import Decoder, EncoderDecoder
from tests.inference.by_hand import greedy
from tests.inference.random_translators import (
    SEPARATE,
    SHARED,
    START,
    VOCAB,
    full_logits,
    random_params,
)

GREEDY = SamplingConfig(temperature=0)
SOURCES = [[2, 3, 18, 4, 5], [17] * 9, [6]]
PROMPTS = [[START, 5, 6, 7], [START], [START, 2]]
RNG = jax.random.key(7)


def continue_(prompts=PROMPTS, sources=SOURCES, config=SEPARATE, sampling=GREEDY, **options):
    options = {"rng": RNG, "max_new_tokens": 6} | options
    model = EncoderDecoder(config)
    rows = generate(
        model, random_params(SEPARATE), prompts, sources=sources, sampling=sampling, **options
    )
    return [row.tolist() for row in rows]


def test_greedy_equals_a_full_pass_per_token():
    expected = [
        greedy(lambda target, s=source: full_logits(SEPARATE, s, target)[-1], prompt, 6)
        for source, prompt in zip(SOURCES, PROMPTS, strict=True)
    ]
    assert continue_() == expected
    assert len({tuple(row) for row in expected}) == 3
    assert continue_(sources=SOURCES[::-1]) != expected


def test_row_depends_on_its_own_prompt_source_and_key_only():
    rngs, sampling = jax.random.split(RNG, 3), SamplingConfig(top_k=9)
    options = {"sampling": sampling, "max_new_tokens": 12}
    together = continue_(rng=rngs, **options)
    assert together == continue_(rng=rngs, **options) != continue_(rng=rngs[::-1], **options)
    order = np.array([2, 0, 1])
    moved = continue_(
        [PROMPTS[row] for row in order], [SOURCES[row] for row in order], rng=rngs[order], **options
    )
    assert moved == [together[row] for row in order]
    alone = continue_(PROMPTS[:1], SOURCES[:1], rng=rngs[:1], **options)
    assert alone == together[:1]


def test_row_that_ended_leaves_the_others_as_they_are():
    free = continue_()
    stop = next(row[1] for row in free if row[1] not in row[:1])
    ends = [row.index(stop) + 1 if stop in row else len(row) for row in free]
    assert min(ends) < max(ends)  # or the test shows nothing
    assert continue_(stop_tokens=[stop]) == [row[:end] for row, end in zip(free, ends, strict=True)]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"sources": None}, ConfigError, "got none for EncoderDecoder"),
        ({"sources": 3}, DataError, "sources"),
        ({"sources": SOURCES[:2]}, DataError, "got 2 sources and 3 prompts"),
        ({"sources": [[2], [], [3]]}, DataError, "source 1 is empty"),
        ({"sources": [[2], [19], [3]]}, DataError, r"in 0 \.\. 18, got 19 at index 0 of source 1"),
        ({"sources": [[2], [3], [2] * 51]}, DataError, "got 51 in source 2"),
        ({"prompts": [[START], [VOCAB], [START]]}, DataError, "got 13 at index 0 of prompt 1"),
    ],
)
def test_impossible_requests_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        continue_(**arguments)


def test_decoders_have_no_sources():
    decoder = ModelConfig(vocab_size=VOCAB, max_len=50, num_layers=1, d_model=4, num_heads=2)
    with pytest.raises(ConfigError, match="got 3 for Decoder"):
        generate(Decoder(decoder), {}, PROMPTS, sources=SOURCES, rng=RNG, max_new_tokens=6)


def test_model_trained_with_the_kernel_of_a_gpu_continues_without_one():
    cudnn = dataclasses.replace(SHARED, dtype="bfloat16", attention_implementation="cudnn")
    rows = generate(
        EncoderDecoder(cudnn),
        random_params(SHARED),
        [[START]],
        sources=[[2, 3]],
        max_new_tokens=2,
        rng=RNG,
    )
    assert [len(row) for row in rows] == [2]
