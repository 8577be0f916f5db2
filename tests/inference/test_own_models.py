"""Generation and translation with modules of a user's own, which are not classes of the package."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxformer.config import BeamSearchConfig, ModelConfig, SamplingConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.inference import generate, generate_stream, translate, translate_stream
from jaxformer.models import Decoder, Encoder, EncoderDecoder, Transformer
from tests.inference import random_translators
from tests.inference.by_hand import greedy, next_logits
from tests.inference.random_translators import END, SEPARATE, START, full_logits
from tests.option_sets import random_params

VOCAB, NEW = 13, 6
CONFIG = ModelConfig(
    vocab_size=VOCAB, max_len=16, num_layers=1, d_model=8, num_heads=2, init_std=0.5
)
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8]]
GREEDY = SamplingConfig(temperature=0)
RNG = jax.random.key(7)
BIAS = np.linspace(-2, 2, VOCAB).astype(np.float32)[np.arange(VOCAB) * 5 % VOCAB]


def add(logits, bias):
    return logits + jnp.broadcast_to(bias, logits.shape)


class Wrapper(nn.Module):
    """A decoder given as a field, and a learned bias on its logits."""

    inner: Decoder

    @property
    def config(self):
        return self.inner.config

    def setup(self):
        self.bias = self.param("bias", nn.initializers.zeros, (VOCAB,))

    def __call__(self, tokens):
        return self.logits(self.hidden_states(tokens).hidden)

    def hidden_states(self, tokens, *, lengths=None, cache=None):
        return self.inner.hidden_states(tokens, lengths=lengths, cache=cache)

    def logits(self, hidden):
        return add(self.inner.logits(hidden), self.bias)


class Subclass(Transformer):
    """A trunk with a head of its own."""

    causal: bool = True

    def logits(self, hidden):
        return add(super().logits(hidden), BIAS)


class Translator(nn.Module):
    """An encoder-decoder made in setup, and a constant bias on its logits."""

    config: ModelConfig

    def setup(self):
        self.inner = EncoderDecoder(self.config)

    @property
    def decoder(self):
        return self.inner.decoder

    def encode(self, source_tokens, **inputs):
        return self.inner.encode(source_tokens, **inputs)

    def logits(self, hidden):
        return add(self.inner.logits(hidden), BIAS)


@pytest.fixture(scope="module")
def params():
    return random_params(CONFIG)


@pytest.mark.parametrize("kind", ["wrapper", "subclass"])
def test_own_decoder_continues_as_its_full_pass_would(params, kind):
    model, params_of_model = Subclass(CONFIG), params
    if kind == "wrapper":
        model, params_of_model = Wrapper(Decoder(CONFIG)), {"inner": params, "bias": BIAS}
    logits_of = next_logits(CONFIG, params)
    expected = [greedy(lambda t: logits_of(t) + BIAS, prompt, NEW) for prompt in PROMPTS]
    options = {"max_new_tokens": NEW, "sampling": GREEDY, "rng": RNG}
    assert [
        row.tolist() for row in generate(model, params_of_model, PROMPTS, **options)
    ] == expected
    assert expected != [greedy(logits_of, prompt, NEW) for prompt in PROMPTS]


def test_own_encoder_decoder_generates_and_translates_as_its_full_pass_would():
    sources = [[2, 3, 4, 5], [7]]
    params = {"inner": random_translators.random_params(SEPARATE)}
    expected = [
        greedy(lambda t, s=source: full_logits(SEPARATE, s, t)[-1] + BIAS, [START], NEW)
        for source in sources
    ]
    model = Translator(SEPARATE)
    rows = generate(
        model, params, [[START]] * 2, sources=sources, max_new_tokens=NEW,
        sampling=GREEDY, rng=RNG,
    )  # fmt: skip
    assert [row.tolist() for row in rows] == expected
    translations = translate(
        model, params, sources, start_token=START, end_tokens=[END],
        search=BeamSearchConfig(beam_size=1), max_new_tokens=NEW,
    )  # fmt: skip
    until_end = [row[: row.index(END)] if END in row else row for row in expected]
    assert [hypotheses[0].tokens.tolist() for hypotheses in translations] == until_end
    assert expected != [
        greedy(lambda t, s=source: full_logits(SEPARATE, s, t)[-1], [START], NEW)
        for source in sources
    ]


class LostCache(Subclass):
    def hidden_states(self, tokens, *, cache=None, **inputs):
        return super().hidden_states(tokens, **inputs)


class SameCache(Subclass):
    def hidden_states(self, tokens, *, cache=None, **inputs):
        return super().hidden_states(tokens, **inputs)._replace(cache=cache)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (None, ["generation needs a Decoder or an EncoderDecoder", "got None", "your own module"]),
        (Decoder, ["generation needs", "got <class"]),
        (nn.Dense(3), ["got a Dense", "needs a config"]),
        (
            Encoder(dataclasses.replace(CONFIG, architecture="encoder")),
            ["got a Encoder", "with architecture 'decoder' or 'encoder_decoder'"],
        ),
        (LostCache(CONFIG), ["must return the given cache", "got no cache from a LostCache"]),
        (SameCache(CONFIG), ["extended by the new tokens, got the same cache"]),
    ],
)
def test_what_cannot_be_decoded_with_is_refused_by_name(params, model, words):
    with pytest.raises(ConfigError, match=r"^(hidden_states of )?model") as error:
        generate(model, params, PROMPTS, max_new_tokens=NEW, rng=RNG)
    for word in words:
        assert word in str(error.value)


def test_streams_check_their_arguments_at_the_call(params):
    with pytest.raises(DataError, match="prompt 0 is empty"):
        generate_stream(Subclass(CONFIG), params, [[]], max_new_tokens=NEW, rng=RNG)
    with pytest.raises(DataError, match="source 0 is empty"):
        translate_stream(Translator(SEPARATE), {}, [[]], start_token=START, end_tokens=[END])
