import jax
import pytest

from jaxformer.config import SamplingConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.inference import generate
from jaxformer.models import EncoderDecoder
from tests.inference.by_hand import greedy
from tests.inference.random_translators import (
    SEPARATE,
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


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"sources": None}, ConfigError, "got none for EncoderDecoder"),
        ({"sources": 3}, DataError, "sources"),
        ({"sources": SOURCES[:2]}, DataError, "got 2 sources and 3 prompts"),
        ({"sources": [[2], [19], [3]]}, DataError, r"in 0 \.\. 18, got 19 at index 0 of source 1"),
        ({"prompts": [[START], [VOCAB], [START]]}, DataError, "got 13 at index 0 of prompt 1"),
    ],
)
def test_impossible_requests_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        continue_(**arguments)
