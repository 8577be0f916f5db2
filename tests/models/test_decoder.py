"""What every decoder computes, with the options of the package and as models were published."""

import dataclasses
import functools
import pathlib
import traceback

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer.functional.attention import dense
from jaxformer.models import Decoder, init_cache
from tests import option_sets
from tests.models.compiled import apply, assert_decodes
from tests.option_sets import VOCAB

LENGTH, CAPACITY = 7, 13
PACKAGE = str(pathlib.Path(jaxformer.__file__).parent)
TOKENS = np.asarray(jax.random.randint(jax.random.key(2), (3, LENGTH), 0, VOCAB))


def assert_close(logits, expected):
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


@pytest.fixture(scope="module", params=[*option_sets.PUBLISHED, *option_sets.OPTIONS])
def model(request):
    """A looped model, its parameters, and its logits of TOKENS."""
    decoder = Decoder(option_sets.config(request.param))
    params = option_sets.random_params(decoder.config)
    return decoder, params, np.asarray(apply(decoder, params, TOKENS).logits)


@pytest.mark.essential
def test_decoder_equals_a_float64_reference(model):
    decoder, params, logits = model
    assert logits.dtype == np.float32
    assert_close(logits, option_sets.reference_logits(decoder.config, params, TOKENS))


@pytest.mark.essential
def test_decoder_cannot_see_the_future(model):
    """The gradient of position t's logits by the embeddings of later tokens is exactly 0."""
    decoder, params, _ = model
    decoder = Decoder(dataclasses.replace(decoder.config, tied_embeddings=False))
    embedding = params["embedding"]["embedding"]
    table = np.resize(embedding[::-1], (VOCAB, decoder.config.d_model))
    params = {**params, "embedding": {**params["embedding"], "output_embedding": table}}
    # One table row per position, so that a token's gradient is its position's.
    tokens = np.arange(LENGTH)[None]

    def logits_at(table, t):
        changed = {**params, "embedding": {**params["embedding"], "embedding": table}}
        return (apply(decoder, changed, tokens).logits[0, t] * np.arange(VOCAB)).sum()

    grads = jax.jit(jax.vmap(jax.grad(logits_at), (None, 0)))(embedding, np.arange(LENGTH))
    influence = np.abs(np.asarray(grads)[:, :LENGTH]).max(-1)  # [t, source]
    assert (influence[np.triu_indices(LENGTH, 1)] == 0).all()
    assert (np.diag(influence) > 0).all()
    assert (influence[1:, 0] > 0).all() or decoder.config.local_window_size


@pytest.mark.essential
@pytest.mark.parametrize("chunks", [(1,) * LENGTH, (3, 4), (LENGTH,)])
def test_cached_decoding_equals_the_full_pass(model, chunks):
    decoder, params, logits = model
    cache, start, pieces = init_cache(decoder.config, 3, CAPACITY), 0, []
    for size in chunks:
        output = apply(decoder, params, TOKENS[:, start : start + size], cache=cache)
        cache, start = output.cache, start + size
        pieces.append(output.logits)
    assert_close(np.concatenate(pieces, axis=1), logits)
    assert cache[0].lengths.tolist() == [LENGTH] * 3


def test_cached_rows_of_unequal_length_equal_the_full_pass(model):
    decoder, params, logits = model
    cache = init_cache(decoder.config, 3, CAPACITY)
    assert_decodes(decoder, params, TOKENS, np.array([2, 5, 4]), logits, cache=cache, steps=2)


@pytest.mark.essential
def test_scanned_model_equals_the_looped_one(model):
    decoder, params, logits = model
    scanned = Decoder(dataclasses.replace(decoder.config, layer_execution="scan"))
    assert_close(apply(scanned, params, TOKENS).logits, logits)


@pytest.mark.essential
def test_packed_documents_do_not_see_each_other(model):
    decoder, params, logits = model
    packed = np.concatenate([TOKENS[0], TOKENS[1]])[None]
    ids = np.repeat(np.arange(2), LENGTH)[None]
    positions = np.tile(np.arange(LENGTH), 2)[None]
    output = apply(decoder, params, packed, segment_ids=ids, positions=positions)
    assert_close(output.logits[0], np.concatenate([logits[0], logits[1]]))


def test_positions_matter_where_there_are_any(model):
    """Biases are counted by the index in any case; rotary positions are relative."""
    decoder, params, logits = model
    kind = decoder.config.positions.kind
    for positions, kinds in (
        (2 * np.arange(LENGTH), ("none", "alibi", "relative")),
        (np.arange(LENGTH) + 5, ("none", "alibi", "relative", "rotary")),
    ):
        moved = apply(decoder, params, TOKENS, positions=np.tile(positions, (3, 1))).logits
        assert np.allclose(moved, logits, rtol=0, atol=1e-4) == (kind in kinds)


def test_bfloat16_computes_in_bfloat16_and_keeps_parameters_float32(model):
    decoder, params, logits = model
    narrow = Decoder(dataclasses.replace(decoder.config, dtype="bfloat16", remat="full"))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    output = np.asarray(apply(narrow, params, TOKENS).logits)
    assert output.dtype == np.float32
    error = np.abs(output - logits).max() / np.abs(logits).max()
    assert 1e-5 < error < 6e-2  # not float32 in disguise, and not broken
    cache = init_cache(narrow.config, 3, CAPACITY)
    step = jax.eval_shape(functools.partial(apply, narrow), params, TOKENS, cache=cache)
    assert step.hidden.dtype == step.cache[0].key.dtype == jnp.bfloat16


def test_nine_functions_lead_from_a_call_to_the_softmax(monkeypatch):
    ways = []

    def softmax(scores):
        frames = traceback.extract_stack()[:-1]
        ways.append([frame for frame in frames if frame.filename.startswith(PACKAGE)])
        return softmax_factors(scores)

    softmax_factors = dense.softmax_factors
    monkeypatch.setattr(dense, "softmax_factors", softmax)
    decoder = Decoder(option_sets.BASE)
    shapes = jax.eval_shape(decoder.init_params, jax.random.key(0))
    jax.eval_shape(lambda params: decoder.apply({"params": params}, TOKENS), shapes)
    way = ways[-1]
    assert (way[0].name, way[-1].name) == ("__call__", "attend_block")
    assert len(way) == 9 and len({frame.filename for frame in way}) == 7
