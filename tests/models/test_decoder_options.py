"""What some options of a decoder do, and the parameters that they have."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.config import ModelConfig, RelativeConfig, load_config
from jaxformer.errors import DataError
from jaxformer.functional import dot_product_attention
from jaxformer.models import Decoder, init_cache
from jaxformer.models.init_shapes import init_shapes
from tests import option_sets
from tests.functional.programs import shapes_of
from tests.models.compiled import apply

LENGTH, CAPACITY = 9, 13
SMALL = ModelConfig(vocab_size=11, max_len=16, num_layers=2, d_model=12, num_heads=2, init_std=0.3)
TOKENS = np.asarray(jax.random.randint(jax.random.key(2), (3, LENGTH), 0, option_sets.VOCAB))


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
    shapes = init_shapes(Decoder(config))
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


@pytest.mark.parametrize(
    ("name", "vocab_size", "count"),
    [
        ("gpt2_124m", 50257, 124_439_808),  # Radford et al. (2019), as Hugging Face counts it
        ("nanogpt_cpu", 65, 804_096),  # 0.80 M, and 10.65 M below, without positions, as
        # nanoGPT counts them
        ("nanogpt_char", 65, 10_745_088),
    ],
)
def test_ready_configs_have_the_published_parameter_counts(name, vocab_size, count):
    config = dataclasses.replace(load_config(f"configs/{name}.toml").model, vocab_size=vocab_size)
    shapes = jax.eval_shape(Decoder(config).init_params, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == count


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_unknown_tokens_are_refused_where_they_are_known_and_real(kind):
    unknown = SMALL.vocab_size
    tokens, lengths = kind([[1, 2, -1], [0, unknown, -1]]), kind([2, 1])

    def init(**inputs):
        return jax.eval_shape(lambda: Decoder(SMALL).init(jax.random.key(0), tokens, **inputs))

    init(lengths=lengths)
    with pytest.raises(DataError, match=r"got -1 at index \(0, 2\); encode them"):
        init()
    with pytest.raises(DataError, match=rf"V-1 = {unknown - 1}, got {unknown} at index \(1, 1\)"):
        init(lengths=lengths + 1 - kind([1, 0]))


def test_learned_position_beyond_the_table_is_nan_not_another_row():
    decoder = Decoder(dataclasses.replace(SMALL, positions="learned"))
    params = option_sets.random_params(decoder.config)
    output = apply(decoder, params, TOKENS[:2, :1], positions=jnp.array([[0], [16]]))
    assert bool(jnp.isfinite(output.logits[0]).all())
    assert bool(jnp.isnan(output.logits[1]).all())
