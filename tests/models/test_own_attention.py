"""Masks, biases, attention functions and attention layers that a user brings to a model."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ShapeError
from jaxformer.functional import Causal, Prefix, Rule, Segments, dot_product_attention
from jaxformer.models import (
    Decoder,
    Encoder,
    EncoderDecoder,
    MaskedLanguageModel,
    SequenceClassifier,
    Taps,
    init_cache,
)
from jaxformer.modules import Block, MultiHeadAttention
from tests import numpy_transformer as reference
from tests.models.compiled import apply, assert_decodes
from tests.models.own_parts import (
    BIAS,
    BOTH,
    CAPACITY,
    CONFIG,
    ENCODER,
    MASK,
    PATTERN,
    RNG,
    TOKENS,
    VOCAB,
    B,
    T,
    softmax_with_sink,
)


def expected_weights(weights, mask):
    """Weights of a layer whose scores were those of `weights`, under a further mask."""
    masked = np.where(mask, weights, 0)
    return masked / np.maximum(masked.sum(-1, keepdims=True), 1e-30)


@pytest.mark.essential
@pytest.mark.parametrize("execution", ["scan", "loop"])
@pytest.mark.parametrize(
    ("make", "config"),
    [
        (Decoder, CONFIG),
        (Encoder, ENCODER),
        (MaskedLanguageModel, ENCODER),
        (SequenceClassifier, dataclasses.replace(ENCODER, num_classes=3)),
    ],
)
def test_mask_acts_in_every_layer_on_top_of_the_structure(make, config, execution):
    model = make(dataclasses.replace(config, layer_execution=execution))
    params = reference.draw_params(model, TOKENS)
    lengths = np.array([7, 4])
    output = apply(model, params, TOKENS, lengths=lengths, mask=MASK, return_weights=True)
    real = np.arange(T) < lengths[:, None]
    allowed = MASK & real[:, None, None] & real[:, None, :, None]
    if make is Decoder:
        allowed = allowed & np.tri(T, dtype=bool)
    weights = np.asarray(output.weights.self_attention)
    np.testing.assert_array_equal(weights > 0, np.broadcast_to(allowed, weights.shape))


def test_bias_is_added_to_the_scores_of_every_layer():
    """Of layers without values, all see the same inputs, so all have the weights by hand."""
    model = Decoder(dataclasses.replace(CONFIG, positions="alibi"))
    params = reference.draw_params(model, TOKENS)
    attention = params["stack"]["layers"]["attention"]
    attention["query_kernel"] *= 0
    attention["query_bias"] *= 0
    weights_of_layers = apply(
        model, params, TOKENS, bias=BIAS, return_weights=True
    ).weights.self_attention
    distance = np.arange(T)[:, None] - np.arange(T)
    alibi = -np.array([2.0**-4, 2.0**-8])[:, None, None] * distance
    weights = np.where(distance >= 0, np.exp(BIAS + alibi), 0)
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(
        weights_of_layers, np.broadcast_to(weights, weights_of_layers.shape), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("window", [None, 2])
def test_masks_and_biases_go_with_a_cache(window):
    model = Decoder(dataclasses.replace(CONFIG, local_window_size=window))
    params = reference.draw_params(model, TOKENS)
    full = apply(model, params, TOKENS, mask=MASK, bias=BIAS).logits
    room = ((0, 0), (0, 0), (0, 0), (0, CAPACITY - T))
    mask, bias = np.pad(MASK, room), np.pad(BIAS, room)
    cache, start, pieces = init_cache(model.config, B, CAPACITY), 0, []
    for size in (4, 1, 2):
        rows = slice(start, start + size)
        output = apply(
            model, params, TOKENS[:, rows], mask=mask[:, :, rows], bias=bias[:, :, rows],
            cache=cache,
        )  # fmt: skip
        cache, start = output.cache, start + size
        pieces.append(output.logits)
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), full, rtol=0, atol=1e-5)


@pytest.mark.parametrize("window", [None, 2])
def test_rules_count_positions_among_all_cached_tokens(window):
    model = Decoder(dataclasses.replace(CONFIG, local_window_size=window))
    params = reference.draw_params(model, TOKENS)
    rule = Rule(lambda query, key: (query + key) % 3 > 0) | Causal(-2)
    full = apply(model, params, TOKENS, mask=rule).logits
    by_array = apply(model, params, TOKENS, mask=np.asarray(rule.array(T, T))).logits
    np.testing.assert_allclose(full, by_array, rtol=0, atol=1e-5)
    # Rows of unequal length: the second has one token less from the first call on.
    cache, lengths = init_cache(model.config, B, CAPACITY), np.array([4, 3])
    assert_decodes(model, params, TOKENS, lengths, full, cache=cache, steps=3, mask=rule)


def test_segments_of_a_rule_do_not_go_with_a_cache():
    model, cache = Decoder(CONFIG), init_cache(CONFIG, B, CAPACITY)
    params = reference.draw_params(model, TOKENS)
    output = apply(model, params, TOKENS[:, :2], cache=cache)
    for rule in (Segments(np.ones((B, 1), int)), np.ones((1, 1), bool) & Causal()):
        with pytest.raises(ShapeError, match="with a cache, a rule must say .* by positions"):
            apply(model, params, TOKENS[:, 2:3], mask=rule, cache=output.cache)


def test_a_function_of_ones_own_gets_a_rule_as_an_array():
    masks = []

    def attend(query, key, value, mask=None, **options):
        masks.append(mask)
        return dot_product_attention(query, key, value, mask=mask, **options)

    model = Decoder(CONFIG, attention_fn=attend)
    params = reference.draw_params(model, TOKENS)
    output = apply(model, params, TOKENS, mask=Prefix(np.array([4, 2])))
    assert isinstance(masks[-1], jax.Array) and masks[-1].shape == (B, 1, T, T)
    expected = apply(Decoder(CONFIG), params, TOKENS, mask=Prefix(np.array([4, 2])))
    np.testing.assert_array_equal(output.logits, expected.logits)


def test_encoder_decoder_takes_a_mask_for_each_of_its_attentions():
    model = EncoderDecoder(BOTH)
    source = RNG.integers(0, VOCAB, (B, 5), np.int32)
    params = reference.draw_params(model, source, TOKENS)
    source_mask, cross_mask = RNG.random((B, 1, 5, 5)) < 0.6, RNG.random((T, 5)) < 0.6
    output = apply(
        model, params, source, TOKENS, source_mask=source_mask, mask=MASK, cross_mask=cross_mask,
        return_weights=True,
    )  # fmt: skip
    for weights, allowed in [
        (output.encoder_weights, source_mask),
        (output.decoder_weights.self_attention, MASK & np.tri(T, dtype=bool)),
        (output.decoder_weights.cross_attention, cross_mask),
    ]:
        np.testing.assert_array_equal(weights > 0, np.broadcast_to(allowed, weights.shape))


def test_prefix_language_model_reads_its_prefix_both_ways_and_decodes_with_a_cache():
    prefix = np.array([4, 2])
    order = np.arange(T)
    mask = (order <= order[:, None]) | (order < prefix[:, None, None])
    model = Decoder(CONFIG, causal=False)
    params = reference.draw_params(model, TOKENS)
    full = apply(model, params, TOKENS, mask=Prefix(prefix), return_weights=True)
    weights = np.asarray(full.weights.self_attention)
    np.testing.assert_array_equal(weights > 0, np.broadcast_to(mask[:, None], weights.shape))
    # The prompt is the prefix: unmasked prefill, then token by token.
    cache = init_cache(CONFIG, B, CAPACITY)
    assert_decodes(model, params, TOKENS, prefix, full.logits, cache=cache, steps=3)


@pytest.mark.essential
@pytest.mark.parametrize("execution", ["scan", "loop"])
def test_attention_function_is_called_in_its_layers_only(execution):
    calls = []

    def counted(*args, **options):
        calls.append(options.get("local_window_size"))
        return softmax_with_sink(*args, **options)

    config = dataclasses.replace(CONFIG, layers=PATTERN, layer_execution=execution)
    custom, plain = Decoder(config, attention_fn={"sink": counted}), Decoder(CONFIG)
    params = reference.draw_params(plain, TOKENS)
    calls.clear()
    apply(custom, params, TOKENS)
    assert set(calls) == {(2, 0)}
    if execution == "loop":
        assert len(calls) == 2  # layers 0 and 2


@pytest.mark.parametrize(
    "config",
    [CONFIG, dataclasses.replace(CONFIG, layers=PATTERN)],
)
def test_attention_function_decodes_with_a_cache_what_it_computes_in_full(config):
    functions = softmax_with_sink if config is CONFIG else {"sink": softmax_with_sink}
    model, lengths = Decoder(config, attention_fn=functions), np.array([5, 3])
    params = reference.draw_params(model, TOKENS)
    full = apply(model, params, TOKENS).logits
    library = jax.tree.map(lambda _: dot_product_attention, functions)
    plain = apply(Decoder(config, attention_fn=library), params, TOKENS)
    assert np.abs(plain.logits - full).max() > 1e-3
    cache = init_cache(config, B, CAPACITY)
    assert_decodes(model, params, TOKENS, lengths, full, cache=cache, steps=2)


class Gated(nn.Module):
    """An attention layer whose attention function has a learned factor."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x, context, **options):
        factor = self.param("factor", nn.initializers.ones, ())

        def attend(query, key, value, **structure):
            return factor * dot_product_attention(query, key, value, **structure)

        context = dataclasses.replace(context, attention_fn=attend)
        layer = MultiHeadAttention(self.config, name="heads")
        return layer(x, context, **options)


@pytest.mark.parametrize("execution", ["scan", "loop"])
def test_attention_layer_with_parameters_keeps_cache_window_taps_and_weights(execution):
    """The factors may as well be in the output projections of plain layers."""
    config = dataclasses.replace(CONFIG, layer_execution=execution, local_window_size=3)
    gated = Decoder(config, block=functools.partial(Block, attention=Gated))
    params = reference.draw_params(gated, TOKENS)
    attention = params["stack"]["layers"]["attention"]
    factors, heads = attention["factor"], attention["heads"]
    kernel = heads["output_kernel"] * factors[:, None, None]
    layers = params["stack"]["layers"] | {"attention": heads | {"output_kernel": kernel}}
    plain = Decoder(config)
    taps = Taps(read=("weights", "head_outputs", "hidden"))
    full, expected = (
        apply(model, params_of_model, TOKENS, taps=taps, return_weights=True)
        for model, params_of_model in (
            (gated, params), (plain, params | {"stack": {"layers": layers}})
        )
    )  # fmt: skip
    close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-5)
    by_layer = factors[:, None, None, None, None]
    close(full.weights.self_attention, by_layer * expected.weights.self_attention)
    for place in ("weights", "head_outputs"):
        close(full.taps[place], by_layer * expected.taps[place])
    close(full.taps["hidden"], expected.taps["hidden"])
    close(full.logits, expected.logits)
    output = apply(gated, params, TOKENS[:, :5], cache=init_cache(config, B, CAPACITY))
    for step in range(5, T):
        output = apply(gated, params, TOKENS[:, step : step + 1], cache=output.cache)
        close(output.logits[:, 0], full.logits[:, step])
