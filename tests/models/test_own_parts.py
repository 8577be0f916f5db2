"""What a user brings to a model: masks, biases, attention functions, positions, blocks."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxformer.config import LayerConfig, ModelConfig
from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional import attention_mask, dot_product_attention
from jaxformer.models import (
    Decoder,
    Encoder,
    EncoderDecoder,
    MaskedLanguageModel,
    SequenceClassifier,
    Taps,
    init_cache,
)
from jaxformer.modules import Block, BlockOutput, FeedForward, MultiHeadAttention, Norm, Positions
from tests import numpy_transformer as reference

B, T, VOCAB, CAPACITY = 2, 7, 11, 13
CONFIG = ModelConfig(
    vocab_size=VOCAB, max_len=16, num_layers=3, d_model=12, num_heads=2, d_ff=17, init_std=0.3
)
ENCODER = dataclasses.replace(CONFIG, architecture="encoder")
BOTH = dataclasses.replace(CONFIG, architecture="encoder_decoder")
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, VOCAB, (B, T), np.int32)
MASK = RNG.random((B, 1, T, T)) < 0.6
BIAS = np.float32(RNG.standard_normal((1, 2, T, T)))


@functools.partial(jax.jit, static_argnums=0, static_argnames="return_weights")
def apply(model, params, *tokens, **inputs):
    return model.apply({"params": params}, *tokens, **inputs)


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
    found = np.asarray(output.weights.self_attention)
    np.testing.assert_array_equal(found > 0, np.broadcast_to(allowed, found.shape))


def test_bias_is_added_to_the_scores_of_every_layer():
    """Of layers without values, all see the same inputs, so all have the weights by hand."""
    model = Decoder(dataclasses.replace(CONFIG, positions="alibi"))
    params = reference.draw_params(model, TOKENS)
    attention = params["stack"]["layers"]["attention"]
    attention["query_kernel"] *= 0
    attention["query_bias"] *= 0
    found = apply(model, params, TOKENS, bias=BIAS, return_weights=True).weights.self_attention
    distance = np.arange(T)[:, None] - np.arange(T)
    alibi = -np.array([2.0**-4, 2.0**-8])[:, None, None] * distance
    weights = np.where(distance >= 0, np.exp(BIAS + alibi), 0)
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(found, np.broadcast_to(weights, found.shape), rtol=0, atol=1e-6)


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


def test_encoder_decoder_takes_a_mask_for_each_of_its_attentions():
    model = EncoderDecoder(BOTH)
    source = RNG.integers(0, VOCAB, (B, 5), np.int32)
    params = reference.draw_params(model, source, TOKENS)
    source_mask, cross_mask = RNG.random((B, 1, 5, 5)) < 0.6, RNG.random((T, 5)) < 0.6
    output = apply(
        model, params, source, TOKENS, source_mask=source_mask, mask=MASK, cross_mask=cross_mask,
        return_weights=True,
    )  # fmt: skip
    for found, allowed in [
        (output.encoder_weights, source_mask),
        (output.decoder_weights.self_attention, MASK & np.tri(T, dtype=bool)),
        (output.decoder_weights.cross_attention, cross_mask),
    ]:
        np.testing.assert_array_equal(found > 0, np.broadcast_to(allowed, found.shape))


def test_prefix_language_model_reads_its_prefix_both_ways_and_decodes_with_a_cache():
    prefix = np.array([4, 2])
    order = np.arange(T)
    mask = (order <= order[:, None]) | (order < prefix[:, None, None])
    model = Decoder(CONFIG, causal=False)
    params = reference.draw_params(model, TOKENS)
    full = apply(model, params, TOKENS, mask=mask[:, None], return_weights=True)
    weights = np.asarray(full.weights.self_attention)
    np.testing.assert_array_equal(weights > 0, np.broadcast_to(mask[:, None], weights.shape))
    # The prompt is the prefix: unmasked prefill, then token by token.
    cache, rows = init_cache(CONFIG, B, CAPACITY), np.arange(B)
    output = apply(model, params, TOKENS[:, :4], lengths=prefix, cache=cache)
    for step in range(3):
        token = TOKENS[rows, prefix + step][:, None]
        output = apply(model, params, token, cache=output.cache)
        np.testing.assert_allclose(
            output.logits[:, 0], full.logits[rows, prefix + step], rtol=0, atol=1e-5
        )


def softmax_with_sink(query, key, value, mask=None, **structure):
    """A score of 0 takes part in the softmax and has no value (Xiao et al., 2023)."""
    mask = attention_mask(query, key, mask, **structure)
    scores = jnp.einsum("...tnh,...snh->...nts", query, key) / query.shape[-1] ** 0.5
    scores = scores if mask is None else jnp.where(mask, scores, -jnp.inf)
    sink = jnp.zeros_like(scores[..., :1])
    weights = jax.nn.softmax(jnp.concatenate([scores, sink], axis=-1))[..., :-1]
    return jnp.einsum("...nts,...snh->...tnh", weights, value)


PATTERN = (LayerConfig(attention="sink", local_window_size=2), LayerConfig())


@pytest.mark.essential
@pytest.mark.parametrize("execution", ["scan", "loop"])
def test_attention_function_is_called_in_its_layers_only(execution):
    calls = []

    def counted(*args, **options):
        calls.append(options.get("local_window_size"))
        return softmax_with_sink(*args, **options)

    config = dataclasses.replace(CONFIG, layers=PATTERN, layer_execution=execution)
    own, plain = Decoder(config, attention_fn={"sink": counted}), Decoder(CONFIG)
    params = reference.draw_params(plain, TOKENS)
    calls.clear()
    apply(own, params, TOKENS)
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
    cache, rows = init_cache(config, B, CAPACITY), np.arange(B)
    output = apply(model, params, TOKENS[:, :5], cache=cache, lengths=lengths)
    for step in range(2):
        token = TOKENS[rows, lengths + step][:, None]
        output = apply(model, params, token, cache=output.cache)
        np.testing.assert_allclose(
            output.logits[:, 0], full[rows, lengths + step], rtol=0, atol=1e-5
        )


class Differential(nn.Module):
    """The difference of two softmaxes, with a learned factor (Ye et al., 2024)."""

    config: ModelConfig
    sublayers: int = 2

    @nn.compact
    def __call__(self, x, context, **options):
        factor = self.param("factor", nn.initializers.constant(0.3), ())

        def attend(query, key, value, mask=None, **structure):
            halves = (jnp.split(each, 2, axis=-1) for each in (query, key))
            first, second = (
                dot_product_attention(*half, value, mask=mask, **structure)
                for half in zip(*halves, strict=True)
            )
            return first - factor.astype(value.dtype) * second

        context = dataclasses.replace(context, attention_fn=attend)
        layer = MultiHeadAttention(self.config, self.sublayers, name="heads")
        return layer(x, context, **options)


def differential_weights(query, key, mask, factor):
    """Weights [B, N, T, S] in float64, of queries and keys [B, T, N, H]."""
    weights = []
    for part in (slice(None, 3), slice(3, None)):
        scores = np.einsum("btnh,bsnh->bnts", query[..., part], key[..., part]) / 3**0.5
        scores = np.where(mask, scores, -np.inf)
        exponentials = np.exp(scores - scores.max(-1, keepdims=True))
        weights.append(exponentials / exponentials.sum(-1, keepdims=True))
    return weights[0] - factor * weights[1]


@pytest.mark.parametrize("execution", ["scan", "loop"])
def test_attention_layer_with_parameters_keeps_cache_window_taps_and_weights(execution):
    config = dataclasses.replace(
        CONFIG, layer_execution=execution, positions="none", local_window_size=3
    )
    model = Decoder(config, block=functools.partial(Block, attention=Differential))
    params = reference.draw_params(model, TOKENS)
    taps = Taps(read=("inputs", "weights", "head_outputs"))
    full = apply(model, params, TOKENS, taps=taps, return_weights=True)
    layer = jax.tree.map(lambda leaf: np.float64(leaf[1]), params["stack"]["layers"])
    inputs = reference.norm(config, layer["attention_norm"], np.float64(full.taps["inputs"][1]))
    heads = layer["attention"]["heads"]
    query, key, value = (
        (inputs @ heads[f"{name}_kernel"] + heads[f"{name}_bias"]).reshape(B, T, 2, 6)
        for name in ("query", "key", "value")
    )
    distance = np.arange(T)[:, None] - np.arange(T)
    seen = (distance >= 0) & (distance <= 3)
    expected = differential_weights(query, key, seen, layer["attention"]["factor"])
    for weights in (full.taps["weights"][1], full.weights.self_attention[1]):
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-5)
    attended = np.einsum("bnts,bsnh->btnh", expected, value)
    np.testing.assert_allclose(full.taps["head_outputs"][1], attended, rtol=0, atol=1e-5)
    output = apply(model, params, TOKENS[:, :5], cache=init_cache(config, B, CAPACITY))
    for step in range(5, T):
        output = apply(model, params, TOKENS[:, step : step + 1], cache=output.cache)
        np.testing.assert_allclose(output.logits[:, 0], full.logits[:, step], rtol=0, atol=1e-5)


class Angles(Positions):
    """Adds, rotates and biases, each as a built-in scheme does, to be told from them by parts."""

    width: int

    def setup(self):
        self.scale = self.param("scale", nn.initializers.ones, ())

    def encoding(self, positions):
        return self.scale * jnp.cos(positions[..., None] * jnp.arange(self.width)[None, None])

    def rotation(self, positions):
        turn = jnp.where(positions % 2 == 0, 1.0, -1.0)[..., None, None]
        return lambda query, key: (query * turn, key * turn)

    def bias(self, num_queries, num_keys, query_offset=0):
        offset = jnp.reshape(jnp.asarray(query_offset), (-1, 1, 1, 1))
        query = jnp.arange(num_queries)[None, None, :, None] + offset
        return -0.3 * jnp.abs(query - jnp.arange(num_keys)[None, None, None])


@pytest.mark.parametrize("window", [None, 2])
def test_position_scheme_adds_rotates_and_biases_also_with_a_cache(window):
    config = dataclasses.replace(CONFIG, positions="none", local_window_size=window)
    model = Decoder(config, position_scheme=Angles(width=12))
    params = reference.draw_params(model, TOKENS)
    assert params["positions"]["scale"].shape == ()
    full = apply(model, params, TOKENS).logits
    cache, pieces = init_cache(config, B, CAPACITY), []
    for start in range(T):
        output = apply(model, params, TOKENS[:, start : start + 1], cache=cache)
        cache = output.cache
        pieces.append(output.logits)
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), full, rtol=0, atol=1e-5)


@pytest.mark.parametrize("part", ["encoding", "rotation", "bias"])
def test_every_part_of_a_position_scheme_counts(part):
    class Without(Angles):
        pass

    setattr(Without, part, getattr(Positions, part))
    config = dataclasses.replace(CONFIG, positions="none")
    with_all, without = (
        Decoder(config, position_scheme=scheme(width=12)) for scheme in (Angles, Without)
    )
    params = reference.draw_params(with_all, TOKENS)
    both = [np.asarray(apply(model, params, TOKENS).logits) for model in (with_all, without)]
    assert np.abs(both[0] - both[1]).max() > 1e-3


def test_position_scheme_gets_the_room_of_the_rows():
    rooms = []

    class Listening(Positions):
        def rotation_for(self, positions, room):
            rooms.append(room)
            return None

    model = Decoder(dataclasses.replace(CONFIG, positions="none"), position_scheme=Listening())
    params = jax.eval_shape(model.init_params, jax.random.key(0))
    rooms.clear()
    for cache in (None, init_cache(CONFIG, B, CAPACITY)):
        jax.eval_shape(
            lambda params, c=cache: model.apply({"params": params}, TOKENS, cache=c), params
        )
    assert rooms == [T, CAPACITY]


def test_both_halves_of_an_encoder_decoder_have_their_own_copy_of_a_position_scheme():
    model = EncoderDecoder(
        dataclasses.replace(BOTH, positions="none"), position_scheme=Angles(width=12)
    )
    params = reference.draw_params(model, TOKENS, TOKENS)
    assert params["encoder"]["positions"].keys() == params["decoder"]["positions"].keys()
    assert params["encoder"]["positions"].keys() == {"scale"}
    assert params.keys() == {"embedding", "encoder", "decoder"}  # and none that they share


class ParallelBlock(nn.Module):
    """Attention and feed-forward on the same normed input, as in GPT-J."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x, context, *, cache=None, cross_cache=None, **options):
        inputs = Norm(self.config, name="norm")(x)
        attention = MultiHeadAttention(self.config, name="attention")
        own = attention(inputs, context, cache=cache, **options)
        x = x + own.output + FeedForward(self.config, name="feed_forward")(inputs)
        return BlockOutput(x, cache=own.cache)


@pytest.mark.essential
@pytest.mark.parametrize("execution", ["scan", "loop"])
def test_own_block_is_every_layer(execution):
    config = dataclasses.replace(CONFIG, layer_execution=execution, positions="none")
    model = Decoder(config, block=ParallelBlock)
    params = reference.draw_params(model, TOKENS)
    hidden = apply(model, params, TOKENS).hidden
    own = reference.float64(params)
    x = own["embedding"]["embedding"][TOKENS]
    for index in range(3):
        layer = jax.tree.map(lambda leaf, i=index: leaf[i], own["stack"]["layers"])
        inputs = reference.norm(config, layer["norm"], x)
        attended, _ = reference._attention(
            config, layer["attention"], inputs, inputs, np.tri(T, dtype=bool)[None], 0.0,
            is_self=True,
        )  # fmt: skip
        x = x + attended + reference._feed_forward(config, layer["feed_forward"], inputs)
    expected = reference.norm(config, own["final_norm"], x)
    np.testing.assert_allclose(hidden, expected, rtol=0, atol=1e-5)


class Sowing(nn.Module):
    """A feed-forward layer that sows an auxiliary loss."""

    config: ModelConfig
    sublayers: int = 2

    @nn.compact
    def __call__(self, x):
        self.sow("losses", "balance", jnp.float32(0.25))
        return FeedForward(self.config, self.sublayers, name="inner")(x)


@pytest.mark.parametrize(
    ("execution", "layers"),
    [
        ("scan", ()),
        ("loop", PATTERN),
        ("scan", PATTERN),
        ("loop", ()),
    ],
)
def test_what_blocks_sow_comes_out_of_every_layer(execution, layers):
    config = dataclasses.replace(
        CONFIG, layer_execution=execution, layers=layers, num_layers=5, remat="dots"
    )
    model = Decoder(
        config,
        block=functools.partial(Block, feed_forward=Sowing),
        attention_fn={"sink": softmax_with_sink} if layers else dot_product_attention,
    )
    params = reference.draw_params(model, TOKENS)
    apply = jax.jit(functools.partial(model.apply, mutable=["losses"]))
    _, sown = apply({"params": params}, TOKENS)
    assert sum(np.sum(leaf) for leaf in jax.tree.leaves(sown)) == 5 * 0.25


class Counting(nn.Module):
    """A feed-forward layer that sows how many tokens it was told are real."""

    config: ModelConfig
    sublayers: int = 2

    @nn.compact
    def __call__(self, x, mask=None):
        self.sow("losses", "tokens", jnp.float32(-1) if mask is None else mask.sum(dtype=float))
        return FeedForward(self.config, self.sublayers, name="inner")(x)


def test_feed_forward_that_asks_for_it_is_told_what_is_padding():
    model = Decoder(CONFIG, block=functools.partial(Block, feed_forward=Counting))
    params = reference.draw_params(model, TOKENS)
    lengths = np.arange(2, 2 + len(TOKENS))
    for given, told in ((lengths, lengths.sum()), (None, -1)):
        _, sown = model.apply({"params": params}, TOKENS, lengths=given, mutable=["losses"])
        assert {float(each) for leaf in jax.tree.leaves(sown) for each in np.ravel(leaf)} == {told}


def refused(call, error, words):
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value).split("\n--------------------")[0].splitlines()) == 1


def decode(config=CONFIG, tokens=TOKENS, inputs=None, **parts):
    return lambda: jax.eval_shape(
        lambda: Decoder(config, **parts).init(jax.random.key(0), tokens, **(inputs or {}))
    )


def block_that_returns(make):
    """A block whose result is make(x)."""

    class OwnBlock(nn.Module):
        config: ModelConfig

        @nn.compact
        def __call__(self, x, context, **options):
            return make(nn.Dense(x.shape[-1])(x))

    return OwnBlock


class ArrayAttention(nn.Module):
    """An attention layer that returns an array."""

    config: ModelConfig
    sublayers: int

    def __call__(self, x, context, **options):
        return x


class KeptCache(nn.Module):
    """A block that returns the cache that it got."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x, context, *, cache=None, **options):
        return BlockOutput(nn.Dense(x.shape[-1])(x), cache=cache)


def test_a_block_without_parameters_is_a_block():
    class Nothing(nn.Module):
        config: ModelConfig

        def __call__(self, x, context, **options):
            return BlockOutput(x)

    for execution in ("scan", "loop"):
        model = Decoder(dataclasses.replace(CONFIG, layer_execution=execution), block=Nothing)
        params = reference.draw_params(model, TOKENS)
        assert apply(model, params, TOKENS).hidden.shape == (B, T, 12)


def no_structure(query, key, value):
    return value


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            decode(inputs={"mask": MASK[:, 0]}), ShapeError,
            ["mask must broadcast to [B, N, T, S] = (2, 2, 7, 7)", "(2, 7, 7)", "mask[:, None]"],
        ),
        (decode(inputs={"mask": MASK[..., :3]}), ShapeError, ["mask must", "(2, 1, 7, 3)"]),
        (decode(inputs={"mask": BIAS}), ShapeError, ["mask must be bool", "argument bias"]),
        (decode(inputs={"bias": MASK}), ShapeError, ["bias must be floating", "bool"]),
        (
            decode(inputs={"mask": MASK, "cache": init_cache(CONFIG, B, CAPACITY)}), ShapeError,
            ["mask must broadcast to [B, N, T, S] = (2, 2, 7, 13)", "(2, 1, 7, 7)", "capacity"],
        ),
        (
            decode(inputs={"encoded_mask": MASK}), ShapeError,
            ["encoded_mask is for a model with cross-attention"],
        ),
        (
            decode(attention_fn=no_structure), ConfigError,
            ["attention_fn must take", "is_causal", "no_structure", "attention_mask"],
        ),
        (
            decode(attention_fn=lambda query, key, value, **_: value[..., :1]), ShapeError,
            ["attention_fn must return [..., T, N, Hv] = (2, 7, 2, 6)", "(2, 7, 2, 1)"],
        ),
        (
            decode(attention_fn=lambda query, key, value, **_: value.astype("bfloat16")),
            ShapeError, ["of dtype float32", "dtype bfloat16"],
        ),
        (
            decode(attention_fn=lambda query, key, value, **_: None), ShapeError,
            ["attention_fn must return", "NoneType"],
        ),
        (
            decode(block=KeptCache, inputs={"cache": init_cache(CONFIG, B, CAPACITY)}), ConfigError,
            ["got the cache that it was called with from KeptCache", "use_cache=False"],
        ),
        (
            decode(block=functools.partial(Block, attention=ArrayAttention)), ConfigError,
            ["attention of a Block must", "from ArrayAttention", "MultiHeadOutput(output, cache)"],
        ),
        (
            decode(dataclasses.replace(CONFIG, layers=PATTERN)), ConfigError,
            ["attention must be one of dot_product, got 'sink'", "attention_fn={'sink': "],
        ),
        (
            decode(attention_fn={"linear": softmax_with_sink}), ConfigError,
            ["attention_fn has 'linear', which no layer names", "attention='linear'"],
        ),
        (decode(attention_fn="linear"), ConfigError, ["must be a function, got 'linear'"]),
        (
            lambda: jax.eval_shape(
                EncoderDecoder(BOTH, block=ParallelBlock).init, jax.random.key(0), TOKENS, TOKENS
            ), ConfigError, ["block must make a module", "cross_attention", "unexpected keyword"],
        ),
        (
            decode(position_scheme=type("Wide", (Positions,), {
                "rotation": lambda self, positions: lambda query, key: (query, key[..., :1])
            })()), ShapeError, ["a rotation must keep the key's shape (2, 7, 2, 6)"],
        ),
        (
            decode(position_scheme=type("Narrow", (Positions,), {
                "encoding": lambda self, positions: jnp.ones((*positions.shape, 5))
            })()), ShapeError, ["encoding of the position scheme must", "(2, 7, 12)", "(2, 7, 5)"],
        ),
        (
            decode(position_scheme="alibi"), ConfigError,
            ["position_scheme must be an instance of", "'alibi'", "config.positions"],
        ),
        (decode(position_scheme=Angles), ConfigError, ["an instance of", "Angles"]),
        (
            decode(inputs={"cache": init_cache(CONFIG, 3, CAPACITY)}), ShapeError,
            ["cache[0].lengths must be [B=2], got shape (3,)"],
        ),
        (
            decode(block=block_that_returns(lambda x: x)), ConfigError,
            ["must return a BlockOutput", "from OwnBlock"],
        ),
        (
            decode(block=block_that_returns(lambda x: BlockOutput(x[..., :5]))), ShapeError,
            ["must return x [B, T, D] = (2, 7, 12)", "(2, 7, 5)", "OwnBlock"],
        ),
        (
            decode(
                block=block_that_returns(BlockOutput),
                inputs={"cache": init_cache(CONFIG, B, CAPACITY)},
            ), ConfigError, ["must return its cache", "got none from OwnBlock"],
        ),
        (
            decode(block=block_that_returns(BlockOutput), inputs={"return_weights": True}),
            ConfigError, ["must return AttentionWeights", "NoneType from OwnBlock"],
        ),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused_in_one_line(call, error, words):
    refused(call, error, words)
