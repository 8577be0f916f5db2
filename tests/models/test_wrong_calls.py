"""Wrong calls of models: each is refused by the name of its argument, with what was expected."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import errors
from jaxformer.config import ModelConfig
from jaxformer.models import Decoder, Encoder, EncoderDecoder, SequenceClassifier, init_cache

SIZES = {"vocab_size": 11, "max_len": 8, "num_layers": 2, "d_model": 4, "num_heads": 2}
DECODER = Decoder(ModelConfig(**SIZES))
TRANSLATOR = EncoderDecoder(ModelConfig(architecture="encoder_decoder", **SIZES))
ENCODER = Encoder(ModelConfig(architecture="encoder", **SIZES))
CLASSIFIER = SequenceClassifier(dataclasses.replace(ENCODER.config, num_classes=3))
TYPED = Encoder(dataclasses.replace(ENCODER.config, num_token_types=2))
TOKENS = np.array([[1, 2, 3], [4, 5, 6]])
CACHE = init_cache(DECODER.config, 2, 8)
ENCODED = np.ones((2, 5, 4), np.float32)
IDS = np.ones((2, 17), int)


@pytest.fixture(scope="module")
def params():
    """By model, zeros in the shapes of its parameters."""

    def zeros(model):
        shapes = jax.eval_shape(model.init_params, jax.random.key(0))
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)

    return {model: zeros(model) for model in (DECODER, TRANSLATOR, ENCODER, CLASSIFIER, TYPED)}


def apply(model, *inputs, **options):
    """Traced, so that a call that is not refused computes nothing."""
    return lambda params: jax.eval_shape(
        lambda: model.apply({"params": params[model]}, *inputs, **options)
    )


def decode(*inputs, **options):
    return apply(DECODER, *(inputs or (TOKENS,)), **options)


def translate(*inputs, **options):
    return apply(TRANSLATOR, *(inputs or (TOKENS, TOKENS)), **options)


def attend(**options):
    """The decoder of the encoder-decoder by itself."""
    return apply(
        TRANSLATOR, TOKENS, method=lambda model, *a, **kw: model.decoder(*a, **kw), **options
    )


def cross_cache(batch=2, layers=2):
    entry = CACHE[0]._replace(
        key=np.ones((batch, 2, 5, 2)), value=np.ones((batch, 2, 5, 2)),
        lengths=np.full(batch, 5, np.int32),
    )  # fmt: skip
    return (entry,) * layers


@pytest.mark.parametrize(
    "row",
    [
        (decode([[1, 2]]), "tokens"),
        (decode("tokens"), "tokens"),
        (decode(IDS), "tokens", "at most max_len=8", "(2, 17)", "cut them"),
        (decode(TOKENS[0]), "tokens", "tokens must be [B, T], got shape (3,)"),
        (decode(TOKENS * 1.0), "tokens", "tokens must be integer, got dtype float64"),
        (decode(lengths=[3, 3]), "lengths"),
        (decode(lengths=np.array([3, 4])), "lengths"),
        (decode(lengths=jnp.array([-1, 3])), "lengths"),
        (decode(lengths=np.ones(2)), "lengths", "lengths must be integer, got dtype float64"),
        (decode(lengths=np.ones(3, int)), "lengths", "lengths must be [B=2], got shape (3,)"),
        (decode(positions=np.zeros((2, 3))), "positions"),
        (decode(positions=np.zeros(3, int)), "positions"),
        (decode(positions=TOKENS[:, :2]), "positions", "must be [B=2, T=3]", "(2, 2)"),
        (decode(segment_ids=np.zeros((2, 4), int)), "segment_ids", "must be [B=2, T=3]", "(2, 4)"),
        (decode(segment_ids=np.zeros((2, 3))), "segment_ids"),
        (decode(mask="causal"), "mask"),
        (decode(bias=np.zeros((3, 3), int)), "bias"),
        (decode(deterministic="no"), "deterministic"),
        (decode(return_weights=1), "return_weights"),
        (decode(cache={}), "cache"),
        (decode(cache=CACHE[0]), "cache"),
        (decode(cache=init_cache(DECODER.config, 3, 8)), "cache"),
        (decode(cache=CACHE, mask=jnp.array(True)), "mask"),
        (decode(cache=CACHE, segment_ids=IDS[:, :3]), "segment_ids", "are for packed rows"),
        *(
            (decode(method="hidden_states", **{name: value}), name, "for a model with cross-attent")
            for name, value in {
                "encoded": ENCODED, "encoded_lengths": np.ones(2, int), "cross_cache": cross_cache()
            }.items()
        ),
        (apply(ENCODER, TOKENS[0]), "tokens", "tokens must be [B, T], got shape (3,)"),
        (apply(ENCODER, TOKENS, lengths=np.ones(3, int)), "lengths", "lengths must be [B=2]"),
        (apply(CLASSIFIER, TOKENS, lengths=np.ones(2)), "lengths", "got dtype float64"),
        (apply(TYPED, TOKENS, token_types=np.full((2, 3), 2)), "token_types",
         "DataError: token_types must be in 0 .. V-1 = 1, got 2"),
        (apply(TYPED, TOKENS, token_types=TOKENS[:, :2]), "token_types",
         "token_types must be [B=2, T=3], got shape (2, 2)"),
        (apply(ENCODER, TOKENS, token_types=np.zeros((2, 3), int)), "token_types",
         "token_types are for a model with num_token_types"),
        (translate(IDS, TOKENS), "tokens", "at most max_len=8", "(2, 17)", "cut them"),
        (translate(TOKENS[0], TOKENS), "tokens", "must be [B, T]", "(3,)"),
        (translate(TOKENS, TOKENS * 1.0), "tokens", "must be integer, got dtype float64"),
        (translate(TOKENS[:1], TOKENS), "encoded", "must be [B=2, S, D=4]", "(1, 3, 4)"),
        (translate(source_lengths=np.array([3, 9])), "lengths"),
        (translate(source_lengths=np.array([1])), "lengths", "must be [B=2]", "(1,)"),
        (translate(lengths=np.array([[3, 3]])), "lengths"),
        (translate(source_mask=np.zeros((3, 3))), "mask"),
        (translate(cross_mask=np.zeros((3, 4), bool)), "mask"),
        (translate(return_weights="all"), "return_weights"),
        (attend(), "encoded", "needs the encoder's output or a cross_cache of it, got neither"),
        (attend(encoded=ENCODED[..., :3]), "encoded", "must be [B=2, S, D=4]"),
        (attend(encoded=ENCODED, encoded_lengths=np.ones(3, int)), "encoded_lengths",
         "must be [B=2]", "(3,)"),
        (attend(encoded=ENCODED, cross_cache=cross_cache()), "cross_cache",
         "cross_cache replaces encoded, got both", "leave encoded out"),
        (attend(encoded_lengths=np.ones(2, int), cross_cache=cross_cache()), "cross_cache",
         "cross_cache replaces encoded_lengths, got both"),
        (attend(cross_cache=cross_cache(batch=1)), "cross_cache.key",
         "must be [B=2, K=2, S, H=2]", "(1, 2, 5, 2)"),
        (attend(cross_cache=cross_cache(layers=1)), "cross_cache",
         "ConfigError: cross_cache must have one entry per layer, got 1 and"),
        (decode(cache=CACHE[:1]), "cache", "ConfigError: cache must have one entry per layer, "
         "got 1 and num_layers=2"),
        (decode(cache=()), "cache", "ConfigError: cache must have one entry per layer, got 0 and"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_refused_by_name(params, row):
    call, argument, *parts = row
    with pytest.raises(ValueError) as raised:
        call(params)
    assert raised.type.__module__ == errors.__name__, repr(raised.value)
    assert re.search(rf"(?<![a-z]){argument}(?![a-z])", str(raised.value)), str(raised.value)
    for part in parts:
        assert part in f"{raised.type.__name__}: {raised.value}"


def test_the_right_calls_are_taken(params):
    nested = [[[[True] * 8] * 3]] * 2
    for call in (
        decode(), translate(), decode(cache=CACHE), decode(cache=CACHE, mask=nested),
        attend(encoded=ENCODED), attend(cross_cache=cross_cache()),
    ):  # fmt: skip
        output = call(params)
        assert (output.hidden if output.logits is None else output.logits).shape[:2] == (2, 3)
