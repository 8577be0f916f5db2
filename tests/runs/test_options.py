"""Options of a call, in place of a run's own settings."""

import jax
import pytest

from jaxformer.config import (
    BeamSearchConfig,
    SamplesConfig,
    SamplingConfig,
    TranslationConfig,
)
from jaxformer.errors import ConfigError
from jaxformer.runs.text_models.options import seed_key, with_options


def test_settings_that_are_not_given_are_the_runs_own():
    own = SamplesConfig(temperature=0.8, top_k=40, prompts=("a",), max_new_tokens=3)
    assert with_options(SamplingConfig, own, {}) == SamplingConfig(temperature=0.8, top_k=40)
    sampling = with_options(SamplingConfig, own, {"top_k": None, "min_p": 0.1})
    assert sampling == SamplingConfig(temperature=0.8, min_p=0.1)
    own = TranslationConfig(beam_size=8, num_best=2, metrics_pairs=5)
    search = with_options(BeamSearchConfig, own, {"num_best": 3})
    assert search == BeamSearchConfig(beam_size=8, num_best=3)


def test_unknown_and_impossible_options_are_refused():
    message = (
        "there is no option 'temp'; the options are repetition_penalty, no_repeat_ngram_size, "
        "min_length, min_new_tokens, temperature, top_k, top_p, min_p, seed"
    )
    with pytest.raises(ConfigError, match=message):
        with_options(SamplingConfig, SamplingConfig(), {"temp": 1.0}, "seed")
    with pytest.raises(ConfigError, match="num_best must be at most beam_size"):
        with_options(BeamSearchConfig, BeamSearchConfig(), {"num_best": 5})


@pytest.mark.parametrize("seed", [-1, 2**31, 0.5, None])
def test_seed_must_be_an_integer_in_range(seed):
    with pytest.raises(ConfigError, match=f"seed must be an integer in 0 .. .*got {seed}"):
        seed_key(seed)


def test_key_is_that_of_the_seed():
    assert jax.random.key_data(seed_key(7)).tolist() == [0, 7]
