import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from einops import rearrange
from flax import linen as nn

from jaxformer.config import ModelConfig, RelativeConfig
from jaxformer.models import EncoderDecoder, init_cache
from tests import numpy_transformer as reference
from tests.models.compiled import apply_on_host as apply
from tests.models.compiled import compiled

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


@compiled
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


@compiled
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
    results = (output.encoder_weights, *output.decoder_weights)
    assert [w.shape[0] for w in results] == [1, 2, 2]
    for result, reference_weights in zip(results, weights, strict=True):
        assert result.dtype == jnp.float32
        np.testing.assert_allclose(result, reference_weights, rtol=0, atol=1e-5)


@pytest.mark.essential
def test_what_padding_holds_changes_no_bit(model):
    model, params, _ = model
    plain = apply(model, params, SOURCE, TOKENS, **LENGTHS)
    other = np.where(SOURCE_IS_REAL, SOURCE, (SOURCE + 1) % VOCAB)
    other_tokens = np.where(IS_REAL, TOKENS, (TOKENS + 1) % VOCAB)
    again = apply(model, params, other, other_tokens, **LENGTHS)
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
    again = apply(scanned, params, SOURCE, TOKENS, **LENGTHS, return_weights=True)
    assert jax.tree.map(jnp.shape, again) == jax.tree.map(jnp.shape, output)
    chex.assert_trees_all_close(again, output, rtol=0, atol=1e-5)


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
        projections = params["decoder"]["stack"]["layers"]["cross_attention"]
        projections = {name: leaf[index] for name, leaf in reference.float64(projections).items()}
        for name, got in (("key", layer.key), ("value", layer.value)):
            projected = np.asarray(encoded, np.float64) @ projections[f"{name}_kernel"]
            projected = projected + projections.get(f"{name}_bias", 0)
            projected = rearrange(projected, "b s (k h) -> b k s h", k=config.kv_heads)
            if name == "key" and config.qk_norm:
                size = np.sqrt(np.square(projected).mean(-1, keepdims=True) + config.norm_eps)
                projected = projected / size * projections["key_norm_scale"]
            np.testing.assert_allclose(got, projected, rtol=0, atol=1e-5)
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
    chex.assert_trees_all_equal(output.cross_cache, cross_cache)


def test_hidden_states_are_what_the_logits_are_made_from():
    model = EncoderDecoder(dataclasses.replace(BASE, **VARIANTS["modern"]))
    params = reference.draw_params(model, SOURCE, TOKENS)

    @compiled
    def score(model, params):
        def read(model):
            hidden = model.hidden_states(SOURCE, TOKENS, **LENGTHS).hidden
            return hidden, model.output_embedding().output_table()

        return nn.apply(read, model)({"params": params})

    hidden, table = jax.device_get(score(model, params))
    assert hidden.shape == (B, T, 12) and table.shape == (VOCAB, 12)
    expected = apply(model, params, SOURCE, TOKENS, **LENGTHS).logits
    np.testing.assert_allclose((hidden @ table.T)[IS_REAL], expected[IS_REAL], rtol=0, atol=1e-5)


@pytest.mark.thorough
def test_gradients_equal_finite_differences():
    """Along one direction in the space of all parameters; scanned stacks recompute."""
    looped = EncoderDecoder(dataclasses.replace(BASE, **VARIANTS["modern"]))
    config = dataclasses.replace(looped.config, layer_execution="scan", remat="dots")
    params = reference.draw_params(looped, SOURCE, TOKENS)
    exact, rng = reference.float64(params), np.random.default_rng(4)
    direction = jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape), exact)
    factors = rng.standard_normal((B, T, VOCAB)) * IS_REAL[..., None]

    @compiled
    def gradient(model, params):
        def total(params):
            output = model.apply({"params": params}, SOURCE, TOKENS, **LENGTHS)
            return (output.logits * factors).sum()

        return jax.grad(total)(params)

    def moved(distance):
        there = jax.tree.map(lambda a, b: a + distance * b, exact, direction)
        logits, _ = reference.encoder_decoder(config, there, SOURCE, TOKENS, **LENGTHS)
        return (logits * factors).sum()

    slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
    gradients = jax.device_get(gradient(EncoderDecoder(config), params))
    along = jax.tree.map(lambda leaf, d: (leaf * d).sum(), gradients, direction)
    np.testing.assert_allclose(sum(jax.tree.leaves(along)), slope, rtol=1e-4)
