import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxformer.config import ModelConfig, RelativeConfig
from jaxformer.functional import AlibiBias, RelativeBias, dot_product_attention
from jaxformer.models import Decoder, init_cache
from jaxformer.models.init_shapes import init_shapes
from jaxformer.modules import Stack
from tests import option_sets
from tests.functional.attention_cases import shapes_of

LENGTH, CAPACITY = 9, 13
TOKENS = np.asarray(jax.random.randint(jax.random.key(2), (3, LENGTH), 0, option_sets.VOCAB))


@functools.partial(jax.jit, static_argnums=0)
def apply(decoder, params, tokens, **arguments):
    return decoder.apply({"params": params}, tokens, **arguments)


@pytest.fixture(scope="module", params=option_sets.OPTIONS)
def model(request):
    """A looped model, its parameters, and its logits of TOKENS."""
    decoder = Decoder(option_sets.config(request.param))
    params = option_sets.random_params(decoder.config)
    return decoder, params, np.asarray(apply(decoder, params, TOKENS).logits)


@pytest.mark.essential
def test_options_equal_a_float64_reference(model):
    decoder, params, logits = model
    expected = option_sets.reference_logits(decoder.config, params, TOKENS)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=2e-5)


def test_options_decode_in_several_appends_as_in_the_full_pass(model):
    decoder, params, logits = model
    lengths, rows = np.array([2, 5, 4]), np.arange(3)
    cache = init_cache(decoder.config, 3, CAPACITY)
    output = apply(decoder, params, TOKENS[:, :5], cache=cache, lengths=lengths)
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(
            output.logits[row, :length], logits[row, :length], rtol=0, atol=2e-5
        )
    for step in range(4):
        token = TOKENS[rows, lengths + step][:, None]
        output = apply(decoder, params, token, cache=output.cache)
        np.testing.assert_allclose(
            output.logits[:, 0], logits[rows, lengths + step], rtol=0, atol=2e-5
        )
    assert output.cache[0].lengths.tolist() == [6, 9, 8]


def test_options_are_the_same_in_a_scanned_stack(model):
    decoder, params, logits = model
    scanned = Decoder(dataclasses.replace(decoder.config, layer_execution="scan"))
    again = apply(scanned, params, TOKENS).logits
    np.testing.assert_allclose(again, logits, rtol=0, atol=2e-5)


def test_shared_bias_has_its_gradient_from_a_scanned_recomputing_stack_and_chunked_attention():
    looped = Decoder(option_sets.config("relative", attention_implementation="dense"))
    scanned = Decoder(
        dataclasses.replace(
            looped.config, layer_execution="scan", remat="dots", attention_implementation="chunked"
        )
    )
    params = option_sets.random_params(looped.config)

    @functools.partial(jax.jit, static_argnums=0)
    def gradient(decoder, table, params):
        params = {**params, "positions": {"table": table}}
        return jax.grad(
            lambda params: jnp.square(decoder.apply({"params": params}, TOKENS).logits).sum()
        )(params)["positions"]["table"]

    table = params["positions"]["table"]
    expected = gradient(looped, table, params)
    assert (np.abs(expected) > 1e-2 * np.abs(expected).max()).all()  # every bucket, every head
    np.testing.assert_allclose(gradient(scanned, table, params), expected, rtol=2e-4, atol=1e-5)


def test_options_keep_packed_documents_apart(model):
    decoder, params, logits = model
    packed = np.concatenate([TOKENS[0], TOKENS[1]])[None]
    ids = np.repeat(np.arange(2), LENGTH)[None]
    positions = np.tile(np.arange(LENGTH), 2)[None]
    output = apply(decoder, params, packed, segment_ids=ids, positions=positions)
    expected = np.concatenate([logits[0], logits[1]])
    np.testing.assert_allclose(output.logits[0], expected, rtol=0, atol=2e-5)


def test_options_compute_in_bfloat16(model):
    decoder, params, logits = model
    narrow = Decoder(dataclasses.replace(decoder.config, dtype="bfloat16", remat="full"))
    output = np.asarray(apply(narrow, params, TOKENS).logits)
    error = np.abs(output - logits).max() / np.abs(logits).max()
    assert 1e-5 < error < 6e-2  # not float32 in disguise, and not broken
    cache = init_cache(narrow.config, 3, CAPACITY)
    step = jax.eval_shape(functools.partial(apply, narrow), params, TOKENS, cache=cache)
    assert step.cache[0].key.dtype == jnp.bfloat16


def contexts_of_stack(decoder, **arguments):
    """What a decoder hands to the first layer of its stack."""
    found = []

    def record(call, args, kwargs, method):
        if isinstance(method.module, Stack) and method.method_name == "__call__":
            found.append(args[1][0])
        return call(*args, **kwargs)

    with nn.intercept_methods(record):
        jax.eval_shape(functools.partial(decoder.init, **arguments), jax.random.key(0), TOKENS)
    return found


@pytest.mark.parametrize("name", option_sets.OPTIONS)
def test_position_bias_reaches_attention_as_a_value(name):
    decoder = Decoder(option_sets.config(name))
    kind = {"alibi": AlibiBias, "relative": RelativeBias}.get(decoder.config.positions.kind)
    for cache in (None, init_cache(decoder.config, 3, CAPACITY)):
        (context,) = contexts_of_stack(decoder, cache=cache)
        assert context.bias is None if kind is None else type(context.bias) is kind


@pytest.mark.parametrize("name", ["alibi", "relative"])
def test_position_bias_is_never_as_large_as_the_weights_in_chunked_attention(name):
    length = 1024

    def largest(implementation):
        config = option_sets.config(name, attention_implementation=implementation, max_len=length)
        decoder = Decoder(config)
        loss = lambda params, tokens: decoder.apply({"params": params}, tokens).logits.sum()  # noqa: E731
        params, tokens = option_sets.random_params(config), np.zeros((1, length), np.int32)
        program = jax.make_jaxpr(jax.grad(loss))(params, tokens)
        return max(map(math.prod, shapes_of(program.jaxpr, set())))

    assert largest("chunked") < length * length <= largest("dense")


def test_attention_implementation_reaches_attention_but_not_with_a_cache():
    asked = []

    def attention(*args, implementation="auto", **options):
        asked.append(implementation)
        return dot_product_attention(*args, implementation="dense", **options)

    config = option_sets.config("alibi", attention_implementation="chunked")
    decoder = Decoder(config, attention_fn=attention)
    params = option_sets.random_params(option_sets.config("alibi"))
    cache = init_cache(decoder.config, 3, CAPACITY)
    for arguments in ({}, {"cache": cache}):
        run = functools.partial(decoder.apply, {"params": params}, **arguments)
        jax.eval_shape(run, TOKENS)
    assert asked == ["chunked"] * 2 + ["auto"] * 2


def count(**options):
    config = ModelConfig(
        **dict(vocab_size=11, max_len=16, num_layers=3, d_model=12, num_heads=2) | options
    )
    shapes = init_shapes(Decoder(config), jax.ShapeDtypeStruct((1, 2), jnp.int32))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


@pytest.mark.parametrize(
    ("options", "more"),
    [
        (dict(positions="none"), 0),
        (dict(positions="sinusoidal"), 0),
        (dict(positions="learned"), 16 * 12),
        (dict(positions="alibi"), 0),
        (dict(positions=RelativeConfig(num_buckets=7, max_distance=9)), 7 * 2),
        (dict(qk_norm=True), 3 * 2 * 6),
        (dict(qk_norm=True, norm_position="post"), 3 * 2 * 6 - 2 * 12),
        (dict(norm_position="sandwich"), 3 * 2 * 2 * 12),
        (dict(norm_position="sandwich", norm="rms_norm"), 3 * (4 - 2 * 2) * 12 - 12),
        (dict(norm_position="post"), -2 * 12),
        (dict(local_window_size=3, attention_softcap=1.0, logit_softcap=1.0), 0),
        (dict(norm_position="output", attention_scale=1.0, logit_scale=1.0), 0),
        (dict(qk_norm=True, qk_norm_over="all_heads"), 3 * 2 * 12),
        (dict(residual="parallel"), 0),
        (dict(residual="parallel_one_norm"), -3 * 2 * 12),
        (dict(attention_sinks=True, zero_centered_norm=True), 3 * 2),
        (dict(qkv_bias=False), -3 * 3 * 12),
        (dict(attention_output_bias=False), -3 * 12),
        (dict(feed_forward_bias=False), -3 * 5 * 12),
        (dict(norm_bias=False), -7 * 12),
        (dict(use_bias=False, qkv_bias=True), -(3 * (1 + 5 + 2) + 1) * 12),
        (dict(output_bias=True), 11),
        (dict(embedding_norm=True, num_token_types=5), 2 * 12 + 5 * 12),
        (dict(activation="geglu_tanh"), 3 * (12 * 48 + 48)),
    ],
    ids=str,
)  # fmt: skip
def test_options_have_their_parameters_and_no_others(options, more):
    assert count(**options) - count() == more
