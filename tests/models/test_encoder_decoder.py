import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from einops import rearrange
from flax import linen as nn

from jaxformer.config import ModelConfig, RelativeConfig
from jaxformer.errors import ConfigError, ShapeError
from jaxformer.models import Decoder, EncoderDecoder, init_cache
from jaxformer.modules import Stack
from tests import numpy_transformer as reference

B, S, T, VOCAB, SOURCE_VOCAB = 3, 7, 5, 11, 13
BASE = ModelConfig(
    architecture="encoder_decoder", vocab_size=VOCAB, max_len=16, num_layers=2,
    num_encoder_layers=1, d_model=12, num_heads=2, d_ff=17, layer_execution="loop",
)  # fmt: skip
VARIANTS = {
    "paper": dict(
        positions="sinusoidal", norm_position="post", activation="relu", scale_embeddings=True
    ),
    "modern": dict(
        positions="rotary", norm="rms_norm", activation="swiglu", use_bias=False, num_heads=6,
        num_kv_heads=3, head_dim=4, value_head_dim=5, qk_norm=True, tied_embeddings=False,
        source_vocab_size=SOURCE_VOCAB,
    ),
    "relative": dict(
        positions=RelativeConfig(num_buckets=6, max_distance=5), local_window_size=3,
        norm_position="sandwich", activation="geglu", embedding_dim=5,
        tied_embeddings=False,
    ),
}  # fmt: skip
RNG = np.random.default_rng(1)
# NumPy arrays, so that what tests do with them is not compiled.
SOURCE, TOKENS = (RNG.integers(0, VOCAB, shape, np.int32) for shape in ((B, S), (B, T)))
# The last source is empty.
LENGTHS = {"source_lengths": np.array([7, 4, 0]), "lengths": np.array([5, 2, 3])}
SOURCE_IS_REAL = np.arange(S) < LENGTHS["source_lengths"][:, None]
IS_REAL = np.arange(T) < LENGTHS["lengths"][:, None]

quickly_compiled = functools.partial(
    jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0}
)


@functools.partial(quickly_compiled, static_argnames="return_weights")
def compiled_apply(model, params, source, tokens, **arguments):
    return model.apply({"params": params}, source, tokens, **arguments)


def apply(*args, **arguments):
    return jax.device_get(compiled_apply(*args, **arguments))


@quickly_compiled
def prefill(model, params, source, source_lengths, tokens, lengths):
    """What decoding starts with: the encoder's output, hidden states and both caches."""

    def read(model):
        encoded = model.encode(source, lengths=source_lengths).hidden
        output = model.decoder.hidden_states(
            tokens, encoded=encoded, encoded_lengths=source_lengths,
            cache=init_cache(model.config, B, T), lengths=lengths,
        )  # fmt: skip
        return encoded, output, model.logits(output.hidden)

    return nn.apply(read, model)({"params": params})


@quickly_compiled
def step(model, params, tokens, cache, cross_cache):
    """One more token with the cross-attention cache in place of the source."""

    def read(model):
        output = model.decoder.hidden_states(tokens, cache=cache, cross_cache=cross_cache)
        return output, model.logits(output.hidden)

    return nn.apply(read, model)({"params": params})


@pytest.fixture(scope="module", params=["paper", "modern", "relative"])
def model(request):
    """A looped model, its parameters, and what it gives for unequal lengths."""
    model = EncoderDecoder(dataclasses.replace(BASE, **VARIANTS[request.param]))
    params = reference.draw_params(model, SOURCE, TOKENS)
    output = apply(model, params, SOURCE, TOKENS, **LENGTHS, return_weights=True)
    return model, params, output


def test_encoder_decoder_equals_a_float64_reference(model):
    model, params, output = model
    expected, weights = reference.encoder_decoder(
        model.config, reference.float64(params), SOURCE, TOKENS, **LENGTHS
    )
    assert output.logits.shape == (B, T, VOCAB) and output.logits.dtype == jnp.float32
    np.testing.assert_allclose(output.logits[IS_REAL], expected[IS_REAL], rtol=0, atol=1e-5)
    found = (output.encoder_weights, *output.decoder_weights)
    assert [w.shape[0] for w in found] == [1, 2, 2]
    for got, want in zip(found, weights, strict=True):
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


def test_weights_sum_to_one_over_visible_tokens_and_are_zero_elsewhere(model):
    _, _, output = model
    future = np.triu(np.ones((T, T), bool), 1)
    both = SOURCE_IS_REAL[:, None] & SOURCE_IS_REAL[..., None]
    visible = {
        "encoder": (output.encoder_weights, both),
        "self": (output.decoder_weights.self_attention, IS_REAL[..., None] & ~future),
        "cross": (
            output.decoder_weights.cross_attention,
            IS_REAL[..., None] & SOURCE_IS_REAL[:, None],
        ),
    }
    for weights, seen in visible.values():
        hidden = np.broadcast_to(~seen[None, :, None], weights.shape)
        assert (np.asarray(weights)[hidden] == 0).all()
        sums = np.broadcast_to(seen.any(-1)[None, :, None], weights.shape[:-1])
        np.testing.assert_allclose(np.asarray(weights).sum(-1), sums, rtol=0, atol=1e-6)


def test_asking_for_weights_changes_no_bit_of_the_logits(model):
    model, params, output = model
    plain = apply(model, params, SOURCE, TOKENS, **LENGTHS)
    assert plain.encoder_weights is None and plain.decoder_weights is None
    np.testing.assert_array_equal(plain.logits, output.logits)


@pytest.mark.essential
def test_what_padding_holds_changes_no_bit(model):
    model, params, _ = model
    plain = apply(model, params, SOURCE, TOKENS, **LENGTHS)
    other = np.where(SOURCE_IS_REAL, SOURCE, (SOURCE + 1) % VOCAB)
    others = np.where(IS_REAL, TOKENS, (TOKENS + 1) % VOCAB)
    again = apply(model, params, other, others, **LENGTHS)
    np.testing.assert_array_equal(again.logits[IS_REAL], plain.logits[IS_REAL])
    # But what is real matters.
    changed = apply(model, params, (SOURCE + 1) % VOCAB, TOKENS, **LENGTHS)
    assert (np.abs(changed.logits - plain.logits)[:2, 0].max(-1) > 1e-3).all()
    np.testing.assert_array_equal(changed.logits[2][IS_REAL[2]], plain.logits[2][IS_REAL[2]])


def test_scanned_equals_looped_with_weights(model):
    model, params, output = model
    scanned = EncoderDecoder(
        dataclasses.replace(model.config, layer_execution="scan", remat="full")
    )
    stacked = params
    again = apply(scanned, stacked, SOURCE, TOKENS, **LENGTHS, return_weights=True)
    assert jax.tree.map(jnp.shape, again) == jax.tree.map(jnp.shape, output)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), again, output)


def _spoil_cross_projections(path, leaf):
    *_, layer, name = (entry.key for entry in path)
    spoilt = layer == "cross_attention" and name.startswith(("key_", "value_"))
    return np.full_like(leaf, np.nan) if spoilt else leaf


def test_decoding_with_memory_equals_the_full_pass(model):
    model, params, _ = model
    full = apply(model, params, SOURCE, TOKENS, source_lengths=LENGTHS["source_lengths"],
                 lengths=np.full(B, T)).logits  # fmt: skip
    lengths, rows = np.array([2, 1, 3]), np.arange(B)
    start = prefill(model, params, SOURCE, LENGTHS["source_lengths"], TOKENS[:, :3], lengths)
    encoded, output, logits = jax.device_get(start)
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(logits[row, :length], full[row, :length], rtol=0, atol=1e-5)
    # The cross-attention cache is the encoder's output, projected.
    config, cross_cache = model.config, output.cross_cache
    assert len(cross_cache) == config.num_layers
    for index, layer in enumerate(cross_cache):
        own = params["decoder"]["stack"]["layers"]["cross_attention"]
        own = {name: leaf[index] for name, leaf in reference.float64(own).items()}
        for name, got in (("key", layer.key), ("value", layer.value)):
            want = np.asarray(encoded, np.float64) @ own[f"{name}_kernel"]
            want = rearrange(want + own.get(f"{name}_bias", 0), "b s (k h) -> b k s h",
                             k=config.kv_heads)  # fmt: skip
            if name == "key" and config.qk_norm:
                size = np.sqrt(np.square(want).mean(-1, keepdims=True) + config.norm_eps)
                want = want / size * own["key_norm_scale"]
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(layer.lengths, LENGTHS["source_lengths"])
    # From here on neither the encoder nor the projections of its output are needed.
    params = {name: params[name] for name in ("decoder", "embedding")}
    params = jax.tree_util.tree_map_with_path(_spoil_cross_projections, params)
    for more in range(2):
        token = TOKENS[rows, lengths + more][:, None]
        output, logits = jax.device_get(
            step(model, params, token, output.cache, output.cross_cache)
        )
        np.testing.assert_allclose(logits[:, 0], full[rows, lengths + more], rtol=0, atol=1e-5)
    assert output.cache[0].lengths.tolist() == [4, 3, 5]
    jax.tree.map(np.testing.assert_array_equal, output.cross_cache, cross_cache)


def test_hidden_states_are_what_the_logits_are_made_from():
    model = EncoderDecoder(dataclasses.replace(BASE, **VARIANTS["modern"]))
    params = reference.draw_params(model, SOURCE, TOKENS)

    @quickly_compiled
    def score(model, params):
        def read(model):
            return model.hidden_states(SOURCE, TOKENS, **LENGTHS).hidden, model.output_table()

        return nn.apply(read, model)({"params": params})

    hidden, table = jax.device_get(score(model, params))
    assert hidden.shape == (B, T, 12) and table.shape == (VOCAB, 12)
    expected = apply(model, params, SOURCE, TOKENS, **LENGTHS).logits
    np.testing.assert_allclose((hidden @ table.T)[IS_REAL], expected[IS_REAL], rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def gradients():
    """By all parameters, of one number for every target position, where each has its own token.

    Through scanned stacks that recompute; the number is a random combination of the logits.
    """
    looped = EncoderDecoder(dataclasses.replace(BASE, **VARIANTS["modern"]))
    config = dataclasses.replace(looped.config, layer_execution="scan", remat="dots")
    params = reference.draw_params(looped, SOURCE, TOKENS)
    inputs = np.arange(S)[None], np.arange(T)[None]
    lengths = {"source_lengths": np.array([4]), "lengths": np.array([T - 1])}
    chosen = RNG.standard_normal((T, VOCAB))

    @quickly_compiled
    def jacobian(model, params):
        def values(params):
            logits = model.apply({"params": params}, *inputs, **lengths).logits
            return (logits[0] * chosen).sum(-1)

        return jax.jacrev(values)(params)

    def expected(params):
        logits, _ = reference.encoder_decoder(looped.config, params, *inputs, **lengths)
        return (logits[0] * chosen).sum(-1)

    found = jax.device_get(jacobian(EncoderDecoder(config), params))
    return found, reference.float64(params), expected


@pytest.mark.thorough
def test_gradients_equal_finite_differences(gradients):
    """Along one direction in the space of all parameters."""
    found, params, expected = gradients
    rng = np.random.default_rng(4)
    direction = jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape), params)

    def moved(distance):
        return expected(jax.tree.map(lambda a, b: a + distance * b, params, direction))

    real, slopes = slice(0, T - 1), (moved(1e-5) - moved(-1e-5)) / 2e-5
    along = jax.tree.map(
        lambda gradient, d: (gradient * np.asarray(d)).reshape(T, -1).sum(-1),
        found,
        direction,
    )
    got = np.sum(jax.tree.leaves(along), axis=0)
    np.testing.assert_allclose(got[real], slopes[real], rtol=0, atol=1e-4 * abs(slopes).max())


@pytest.mark.thorough
def test_targets_see_no_future_and_no_padding_and_all_that_is_real_of_the_source(gradients):
    found, _, _ = gradients
    source, target = (
        np.abs(found[name]["embedding"]).max(-1)[: T - 1]
        for name in ("source_embedding", "embedding")
    )
    assert (source[:, :4] > 0).all() and (source[:, 4:] == 0).all()
    np.testing.assert_array_equal(target[:, :T] > 0, np.tri(T - 1, T, dtype=bool))


def shapes_of(config):
    tokens = jnp.zeros((1, 2), jnp.int32)
    return jax.eval_shape(EncoderDecoder(config).init, jax.random.key(0), tokens, tokens)["params"]


def tables_of(config):
    flat = jax.tree_util.tree_leaves_with_path(shapes_of(config))
    names = {jax.tree_util.keystr(p, simple=True, separator="/"): leaf.shape for p, leaf in flat}
    return {name: shape for name, shape in names.items() if name.endswith("embedding")}


@pytest.mark.parametrize(
    ("options", "tables"),
    [
        ({}, {"embedding/embedding": (11, 12)}),
        (
            {"tied_embeddings": False},
            {"embedding/embedding": (11, 12), "embedding/output_embedding": (11, 12)},
        ),
        (
            {"source_vocab_size": 13},
            {"embedding/embedding": (11, 12), "source_embedding/embedding": (13, 12)},
        ),
        (
            {"source_vocab_size": 13, "tied_embeddings": False},
            {
                "embedding/embedding": (11, 12),
                "embedding/output_embedding": (11, 12),
                "source_embedding/embedding": (13, 12),
            },
        ),
    ],
)
def test_tables_are_shared_unless_the_config_says_otherwise(options, tables):
    assert tables_of(dataclasses.replace(BASE, **options)) == tables


@pytest.mark.parametrize(
    ("width", "hidden", "heads", "published"), [(512, 2048, 8, 65e6), (1024, 4096, 16, 213e6)]
)
def test_parameters_of_the_paper_are_as_many_as_by_hand(width, hidden, heads, published):
    """Vaswani et al. (2017), table 3: base and big, with 37,000 tokens for both languages."""
    config = ModelConfig(
        architecture="encoder_decoder", vocab_size=37_000, max_len=512, num_layers=6,
        d_model=width, num_heads=heads, d_ff=hidden, positions="sinusoidal",
        norm_position="post", activation="relu", scale_embeddings=True,
    )  # fmt: skip
    attention, norm = 4 * (width * width + width), 2 * width
    feed_forward = 2 * width * hidden + hidden + width
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    count = sum(leaf.size for leaf in jax.tree.leaves(shapes_of(config)))
    assert count == 37_000 * width + 6 * (encoder_layer + decoder_layer)
    assert abs(count / published - 1) < 0.03


def test_bfloat16_computes_in_bfloat16():
    config = dataclasses.replace(BASE, **VARIANTS["paper"], dtype="bfloat16")
    model = EncoderDecoder(config)
    params = reference.draw_params(model, SOURCE, TOKENS)
    arguments = (SOURCE, LENGTHS["source_lengths"], TOKENS, LENGTHS["lengths"])
    shapes = jax.eval_shape(functools.partial(prefill.__wrapped__, model), params, *arguments)
    encoded, output, logits = shapes
    assert logits.dtype == jnp.float32
    arrays = (encoded, output.hidden, output.cross_cache[0].key, output.cache[0].key)
    assert {array.dtype for array in arrays} == {jnp.dtype("bfloat16")}


PAPER = EncoderDecoder(dataclasses.replace(BASE, **VARIANTS["paper"]))
PARAMS = reference.draw_params(PAPER, SOURCE, TOKENS)
ENCODED = jnp.ones((B, S, 12))


def run(*args, model=PAPER, **arguments):
    return jax.eval_shape(
        lambda params: model.apply({"params": params}, *args, **arguments), PARAMS
    )


def decode(**arguments):
    return run(TOKENS, method=lambda model, *args, **kw: model.decoder(*args, **kw), **arguments)


def cross_cache():
    shapes = decode(encoded=ENCODED, cache=init_cache(PAPER.config, B, T)).cross_cache
    return jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), shapes)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: run(jnp.zeros((B, 17), jnp.int32), TOKENS),
            ["at most max_len=16", "(3, 17)", "cut them"],
        ),
        (lambda: run(SOURCE[0], TOKENS), ["tokens must be [B, T]", "(7,)"]),
        (lambda: run(SOURCE, TOKENS * 1.0), ["tokens must be integer, got dtype float64"]),
        (lambda: run(SOURCE[:2], TOKENS), ["encoded must be [B=3, S, D=12]", "(2, 7, 12)"]),
        (
            lambda: run(SOURCE, TOKENS, source_lengths=jnp.array([1, 2])),
            ["lengths must be [B=3]", "(2,)"],
        ),
        (
            lambda: run(SOURCE, TOKENS, source_lengths=jnp.ones(B)),
            ["lengths must be integer, got dtype float32"],
        ),
        (lambda: run(SOURCE, TOKENS, lengths=jnp.ones(B)), ["lengths must be integer"]),
        (
            lambda: decode(encoded=ENCODED, encoded_lengths=jnp.ones(2, jnp.int32)),
            ["encoded_lengths must be [B=3]", "(2,)"],
        ),
        (lambda: decode(encoded=ENCODED[..., :5]), ["encoded must be [B=3, S, D=12]"]),
        (
            lambda: decode(),
            ["needs the encoder's output or a cross_cache of it, got neither", "encoded"],
        ),
        (
            lambda: decode(encoded=ENCODED, cross_cache=cross_cache()),
            ["cross_cache replaces encoded, got both", "leave encoded out"],
        ),
        (
            lambda: decode(encoded_lengths=jnp.ones(B, jnp.int32), cross_cache=cross_cache()),
            ["cross_cache replaces encoded_lengths, got both"],
        ),
        (
            lambda: decode(cross_cache=jax.tree.map(lambda leaf: leaf[:2], cross_cache())),
            ["cross_cache.key must be [B=3, K=2, S, H=6]", "(2, 2, 7, 6)"],
        ),
    ],
)
def test_wrong_inputs_are_refused_by_name(call, words):
    with pytest.raises(ShapeError) as error:
        call()
    for word in words:
        assert word in str(error.value)


def test_cross_cache_has_one_entry_for_each_layer():
    with pytest.raises(ConfigError, match="cross_cache must have one entry per layer, got 1 and"):
        decode(cross_cache=cross_cache()[:1])


@pytest.mark.parametrize("name", ["encoded", "encoded_lengths", "cross_cache"])
def test_a_decoder_alone_refuses_what_it_would_ignore(name):
    decoder = Decoder(dataclasses.replace(BASE, architecture="decoder", num_encoder_layers=None))
    given = {
        "encoded": ENCODED,
        "encoded_lengths": LENGTHS["lengths"],
        "cross_cache": cross_cache(),
    }
    with pytest.raises(ShapeError, match=f"{name} is for a model with cross-attention"):
        run(TOKENS, model=decoder, method="hidden_states", **{name: given[name]})


@pytest.mark.parametrize("architecture", ["encoder", "decoder"])
def test_encoder_decoder_refuses_another_architecture(architecture):
    config = dataclasses.replace(BASE, architecture=architecture, num_encoder_layers=None)
    rule = f"needs architecture 'encoder_decoder', got '{architecture}'"
    with pytest.raises(ConfigError, match=rule):
        run(SOURCE, TOKENS, model=EncoderDecoder(config))


@pytest.mark.parametrize("method", ["__call__", "hidden_states"])
@pytest.mark.parametrize("deterministic", [True, False])
def test_dropout_is_on_or_off_in_both_halves(method, deterministic):
    model, dropping = EncoderDecoder(dataclasses.replace(PAPER.config, dropout_rate=0.5)), []

    def record(call, args, kwargs, context):
        if isinstance(context.module, nn.Dropout):
            dropping.append(not context.module.deterministic and not kwargs.get("deterministic"))
        if isinstance(context.module, Stack) and context.method_name == "__call__":
            dropping.append(not kwargs["deterministic"])
        return call(*args, **kwargs)

    with nn.intercept_methods(record):
        run(
            SOURCE, TOKENS, model=model, method=method, deterministic=deterministic,
            rngs={"dropout": jax.random.key(0)},
        )  # fmt: skip
    # Of each half, the stack and the embeddings; of every block, its sublayers.
    assert dropping == [not deterministic] * (2 * 2 + 1 * 2 + 2 * 3)


def test_source_may_have_narrow_embeddings_of_its_own_beside_a_tied_output():
    config = dataclasses.replace(BASE, source_vocab_size=SOURCE_VOCAB, embedding_dim=5)
    model = EncoderDecoder(config)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), SOURCE, TOKENS)["params"])
    tables = {leaf.shape for leaf in jax.tree.leaves(shapes) if VOCAB in leaf.shape}
    assert tables == {(VOCAB, 12)}
    tables = {leaf.shape for leaf in jax.tree.leaves(shapes) if SOURCE_VOCAB in leaf.shape}
    assert tables == {(SOURCE_VOCAB, 5)}
