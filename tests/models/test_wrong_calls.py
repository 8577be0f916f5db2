"""Wrong calls of models, generation and beam search, which other files do not have."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import errors
from jaxformer.config import ModelConfig
from jaxformer.inference import beam_search, generate
from jaxformer.models import Decoder, EncoderDecoder, init_cache

SIZES = {"vocab_size": 11, "max_len": 8, "num_layers": 2, "d_model": 4, "num_heads": 2}
DECODER = Decoder(ModelConfig(**SIZES))
TRANSLATOR = EncoderDecoder(ModelConfig(architecture="encoder_decoder", **SIZES))
TOKENS = np.array([[1, 2, 3], [4, 5, 6]])
RNG = jax.random.key(0)


CACHE = init_cache(DECODER.config, 2, 8)


def params(model, *inputs):
    shapes = jax.eval_shape(lambda: model.init(RNG, *inputs)["params"])
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)


@pytest.fixture(scope="module")
def of():
    return {DECODER: params(DECODER, TOKENS), TRANSLATOR: params(TRANSLATOR, TOKENS, TOKENS)}


def apply(model, *inputs, **options):
    """Traced, so that a call that is not refused computes nothing."""
    return lambda of: jax.eval_shape(
        lambda: model.apply({"params": of[model]}, *inputs, **options).logits
    )


def decode(*inputs, **options):
    return apply(DECODER, *(inputs or (TOKENS,)), **options)


def translate(*inputs, **options):
    return apply(TRANSLATOR, *(inputs or (TOKENS, TOKENS)), **options)


def continue_(model=DECODER, *, given=None, prompts=((1, 2),), **options):
    return lambda of: generate(
        model, of[DECODER] if given is None else given, prompts,
        **{"max_new_tokens": 2, "rng": RNG} | options,
    )  # fmt: skip


def search(**options):
    def step(tokens, cache):
        return jnp.zeros((len(tokens), 5)), cache

    right = {
        "step_fn": step, "cache": (), "start_tokens": np.zeros(1, int), "beam_size": 2,
        "max_new_tokens": 3, "end_tokens": [0],
    }  # fmt: skip
    return lambda of: beam_search(**right | options)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (decode([[1, 2]]), "tokens"),
        (decode(None), "tokens"),
        (decode("tokens"), "tokens"),
        (decode(lengths=[3, 3]), "lengths"),
        (decode(lengths=np.array([3, 4])), "lengths"),
        (decode(lengths=jnp.array([-1, 3])), "lengths"),
        (decode(positions=np.zeros((2, 3))), "positions"),
        (decode(positions=np.zeros(3, int)), "positions"),
        (decode(segment_ids=np.zeros((2, 4), int)), "segment_ids"),
        (decode(segment_ids=np.zeros((2, 3))), "segment_ids"),
        (decode(mask="causal"), "mask"),
        (decode(bias=np.zeros((3, 3), int)), "bias"),
        (decode(deterministic="no"), "deterministic"),
        (decode(deterministic=None), "deterministic"),
        (decode(return_weights=1), "return_weights"),
        (decode(cache={}), "cache"),
        (decode(cache=init_cache(DECODER.config, 2, 8)[0]), "cache"),
        (decode(cache=init_cache(DECODER.config, 3, 8)), "cache"),
        (decode(cache=(None, None)), "cache"),
        (decode(cache=CACHE, mask=jnp.array(True)), "mask"),
        (decode(cache=CACHE, segment_ids=np.zeros((2, 3), int)), "segment_ids are for packed rows"),
        (translate(TOKENS, None), "tokens"),
        (translate(TOKENS[:1], TOKENS), "encoded"),
        (translate(source_lengths=np.array([3, 9])), "lengths"),
        (translate(lengths=np.array([[3, 3]])), "lengths"),
        (translate(source_mask=np.zeros((3, 3))), "mask"),
        (translate(cross_mask=np.zeros((3, 4), bool)), "mask"),
        (translate(return_weights="all"), "return_weights"),
        (continue_("decoder"), "model"),
        (
            continue_(DECODER.config),
            r"got a ModelConfig; build a model from it, such as Decoder\(config\)",
        ),
        (continue_(given=5), "params"),
        (continue_(given={"params": {}}), "params"),
        (continue_(prompts=None), "prompts"),
        (continue_(prompts=7), "prompts"),
        (continue_(prompts="ab"), "prompts"),
        (continue_(sampling={"temperature": 0.5}), "sampling"),
        (continue_(sampling="greedy"), "sampling"),
        (continue_(max_new_tokens=10**12), "max_new_tokens"),
        (continue_(rng=None), "rng"),
        (continue_(vocab_size=5.0), "vocab_size"),
        (continue_(stop_tokens=["end"]), "stop token"),
        (continue_(TRANSLATOR, sources=3), "sources"),
        (continue_(sources=3), "sources"),
        (search(step_fn=None), "step_fn"),
        (search(start_tokens=None), "start_tokens"),
        (search(start_tokens=[[0], [1, 2]]), "start_tokens"),
        (search(end_tokens="."), "end_tokens"),
        (search(end_tokens=[10**12]), "end_tokens"),
        (search(beam_size=10**12), "beam_size"),
        (search(max_new_tokens=10**12), "max_new_tokens"),
        (search(length_penalty="1"), "length_penalty"),
        (search(vocab_size="5"), "vocab_size"),
    ],
)
def test_a_wrong_call_is_refused_by_name(of, call, argument):
    with pytest.raises(ValueError) as raised:
        call(of)
    assert type(raised.value).__module__ == errors.__name__, repr(raised.value)
    assert re.search(rf"(?<![a-z]){argument}(?![a-z])", str(raised.value)), str(raised.value)


def test_the_right_calls_are_taken(of):
    nested = [[[[True] * 8] * 3]] * 2
    for call in (decode(), translate(), decode(cache=CACHE), decode(cache=CACHE, mask=nested)):
        assert call(of).shape == (2, 3, 11)
