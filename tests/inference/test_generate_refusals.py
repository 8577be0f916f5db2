"""What generation refuses, before it computes."""

import jax
import numpy as np
import pytest

from jaxformer.config import ModelConfig, SamplingConfig
from jaxformer.errors import ConfigError, DataError, ShapeError
from jaxformer.inference import generate
from jaxformer.models import Decoder

VOCAB = 13
CONFIG = ModelConfig(vocab_size=VOCAB, max_len=24, num_layers=2, d_model=16, num_heads=2)


@pytest.fixture(scope="module")
def params():
    shapes = jax.eval_shape(Decoder(CONFIG).init_params, jax.random.key(0))
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)


def request(params, changes):
    return {
        "model": Decoder(CONFIG), "params": params, "prompts": [[1]], "max_new_tokens": 5,
        "rng": jax.random.key(7), "sampling": SamplingConfig(temperature=0),
    } | changes  # fmt: skip


def test_the_request_that_the_others_change_is_taken(params):
    (row,) = generate(**request(params, {}))
    assert row.shape == (5,)


LIST = "must be a list of token ids, got "
REFUSED = {
    DataError: [
        ({"prompts": [[1] * 20]}, "20 tokens and max_new_tokens=5.*of 24; ask for at most 4 new"),
        ({"prompts": [[1], [1] * 24]}, "prompt 1 has 24 tokens.*shorten the prompt"),
        ({"prompts": [[]]}, "prompt 0 is empty"),
        ({"prompts": []}, "at least one prompt"),
        ({"prompts": [1, 2]}, f"prompt 0 {LIST}1; pass one such list per"),
        ({"prompts": [[1.0]]}, rf"prompt 0 {LIST}\[1.0\]"),
        ({"prompts": [[1, VOCAB]]}, r"tokens must be in 0 \.\. 12, got 13 at index 1 of prompt 0"),
        ({"prompts": [[-1]]}, "got -1 at index 0"),
        ({"prompts": ["ab"]}, f"prompt 0 {LIST}'ab'"),
        ({"prompts": [[True, False]]}, rf"prompt 0 {LIST}\[True, False\]"),
        ({"prompts": None}, "prompts must be a list of lists of token ids, got None"),
        ({"prompts": "ab"}, "prompts must be a list of lists of token ids, got 'ab'"),
        ({"max_new_tokens": 0}, "max_new_tokens must be a positive int, got 0"),
        ({"max_new_tokens": 2.5}, "max_new_tokens must be a positive int, got 2.5"),
    ],
    ShapeError: [
        ({"rng": None}, r"rng must be one PRNG key, such as jax.random.key\(0\), got None"),
        ({"rng": jax.random.split(jax.random.key(0))}, r"one PRNG key.* and shape \(2,\)"),
    ],
    ConfigError: [
        ({"stop_tokens": [1, VOCAB]}, r"stop_tokens\[1\] must be an int in 0 \.\. 12, got 13"),
        ({"stop_tokens": [8], "vocab_size": 8}, r"in 0 \.\. 7, got 8"),
        ({"stop_tokens": 3}, f"stop_tokens {LIST}3"),
        ({"forbidden_tokens": range(VOCAB)}, "must leave a token to generate, got all 13"),
        ({"forbidden_tokens": [0, 1], "vocab_size": 2}, "got all 2"),
        ({"vocab_size": 0}, r"vocab_size must be an int in 1 \.\. 13, got 0"),
        ({"vocab_size": VOCAB + 1}, "got 14"),
        ({"sampling": {"temperature": 0.5}}, "sampling must be a SamplingConfig"),
        ({"sources": 3}, "sources"),
        ({"sources": [[1]] * 3}, "sources are for an EncoderDecoder.* got 3 for Decoder"),
        ({"params": 5}, "params must be only the parameters"),
        ({"params": {"params": {}}}, "params must be only the parameters"),
        ({"model": CONFIG}, r"got a ModelConfig; build a model from it, such as Decoder\(config\)"),
    ],
}


@pytest.mark.parametrize(
    ("error", "options", "message"),
    [(error, *row) for error, rows in REFUSED.items() for row in rows],
)
def test_impossible_requests_are_refused(params, error, options, message):
    with pytest.raises(error, match=message):
        generate(**request(params, options))
