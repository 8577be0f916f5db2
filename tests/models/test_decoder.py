import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from einops import rearrange

from jaxformer.config import ModelConfig, RotaryConfig, load_config
from jaxformer.errors import ConfigError, DataError, ShapeError
from jaxformer.models import Decoder, init_cache
from tests.option_sets import random_params

LENGTH, VOCAB = 7, 11
BASE = ModelConfig(
    vocab_size=VOCAB, max_len=16, num_layers=2, d_model=12, num_heads=2, init_std=0.3
)
# Every option in at least one, few models: each is compiled several times.
VARIANTS = {
    "gpt2": dict(positions="learned", activation="gelu_tanh"),
    "llama": dict(
        positions=RotaryConfig(layout="interleaved"), norm="rms_norm", activation="swiglu",
        use_bias=False, num_heads=6, num_kv_heads=3, tied_embeddings=False,
    ),
    "original": dict(
        positions="sinusoidal", norm_position="post", activation="relu", scale_embeddings=True
    ),
    "nameless": dict(positions="none", activation="geglu", value_head_dim=5),
}  # fmt: skip
TOKENS = np.asarray(jax.random.randint(jax.random.key(2), (3, LENGTH), 0, VOCAB))


@functools.partial(jax.jit, static_argnums=0)
def apply(decoder, params, tokens, **arguments):
    return decoder.apply({"params": params}, tokens, **arguments)


@pytest.fixture(
    scope="module",
    params=["gpt2", "llama", "original", "nameless"],
)
def model(request):
    """A looped model, its parameters, and its logits of TOKENS."""
    config = dataclasses.replace(BASE, layer_execution="loop", **VARIANTS[request.param])
    decoder = Decoder(config)
    params = random_params(decoder.config)
    return decoder, params, np.asarray(apply(decoder, params, TOKENS).logits)


def test_logits_are_float32_and_shaped(model):
    _, _, logits = model
    assert logits.shape == (3, LENGTH, VOCAB) and logits.dtype == jnp.float32
    assert np.isfinite(logits).all()


@pytest.mark.essential
def test_decoder_cannot_see_the_future(model):
    """The gradient of position t's logits by the embeddings of later tokens is exactly 0."""
    decoder, params, _ = model
    decoder = Decoder(dataclasses.replace(decoder.config, tied_embeddings=False))
    embedding = params["embedding"]["embedding"]
    params = {**params, "embedding": {"embedding": embedding, "output_embedding": embedding[::-1]}}
    # One table row per position, so that a token's gradient is its position's.
    tokens = np.arange(LENGTH)[None]

    def logits_at(table, t):
        own = {**params, "embedding": {**params["embedding"], "embedding": table}}
        return (apply(decoder, own, tokens).logits[0, t] * np.arange(VOCAB)).sum()

    grads = jax.jit(jax.vmap(jax.grad(logits_at), (None, 0)))(embedding, np.arange(LENGTH))
    influence = np.abs(np.asarray(grads)[:, :LENGTH]).max(-1)  # [t, source]
    assert (influence[np.triu_indices(LENGTH, 1)] == 0).all()
    assert (np.diag(influence) > 0).all()
    assert (influence[1:, 0] > 0).all()


@pytest.mark.essential
@pytest.mark.parametrize("chunks", [(1,) * LENGTH, (3, 4), (LENGTH,)])
def test_cached_decoding_equals_the_full_pass(model, chunks):
    decoder, params, logits = model
    cache, start, pieces = init_cache(decoder.config, 3, 16), 0, []
    for size in chunks:
        output = apply(decoder, params, TOKENS[:, start : start + size], cache=cache)
        cache, start = output.cache, start + size
        pieces.append(output.logits)
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), logits, atol=1e-5)
    assert cache[0].lengths.tolist() == [LENGTH] * 3


def test_cached_rows_of_unequal_length_equal_the_full_pass(model):
    decoder, params, logits = model
    lengths = np.array([2, 5, 4])
    cache = init_cache(decoder.config, 3, 16)
    prefill = apply(decoder, params, TOKENS[:, :5], cache=cache, lengths=lengths)
    rows = np.arange(3)
    np.testing.assert_allclose(
        prefill.logits[rows, lengths - 1], logits[rows, lengths - 1], atol=1e-5
    )
    after = apply(decoder, params, TOKENS[rows, lengths][:, None], cache=prefill.cache)
    np.testing.assert_allclose(after.logits[:, 0], logits[rows, lengths], atol=1e-5)


@pytest.mark.essential
def test_scanned_model_equals_the_looped_one(model):
    decoder, params, logits = model
    scanned = Decoder(dataclasses.replace(decoder.config, layer_execution="scan"))
    np.testing.assert_allclose(apply(scanned, params, TOKENS).logits, logits, atol=1e-5)


@pytest.mark.essential
def test_packed_documents_do_not_see_each_other(model):
    decoder, params, logits = model
    packed = np.concatenate([TOKENS[0], TOKENS[1]])[None]
    ids = np.repeat(np.arange(2), LENGTH)[None]
    positions = np.tile(np.arange(LENGTH), 2)[None]
    output = apply(decoder, params, packed, segment_ids=ids, positions=positions)
    np.testing.assert_allclose(output.logits[0, :LENGTH], logits[0], atol=1e-5)
    np.testing.assert_allclose(output.logits[0, LENGTH:], logits[1], atol=1e-5)


def test_positions_matter_where_there_are_any(model):
    decoder, params, logits = model
    moved = apply(decoder, params, TOKENS, positions=2 * np.tile(np.arange(LENGTH), (3, 1)))
    same = bool(jnp.allclose(moved.logits, logits, atol=1e-6))
    assert same == (decoder.config.positions.kind == "none")


def test_rotary_and_missing_positions_are_relative(model):
    decoder, params, logits = model
    shifted = apply(decoder, params, TOKENS, positions=np.tile(np.arange(LENGTH) + 5, (3, 1)))
    same = bool(jnp.allclose(shifted.logits, logits, atol=1e-4))
    assert same == (decoder.config.positions.kind in ("none", "rotary"))


def test_rotary_layouts_are_one_with_the_features_of_queries_and_keys_in_another_order():
    """Pairs 2i and 2i + 1 are i and i + H/2 once the even features come before the odd ones."""
    interleaved = Decoder(dataclasses.replace(BASE, positions=RotaryConfig(layout="interleaved")))
    params = random_params(interleaved.config)

    def reorder(path, leaf):
        if not path[-1].key.startswith(("query_", "key_")):
            return leaf
        return rearrange(leaf, "... (n i two) -> ... (n two i)", n=BASE.num_heads, two=2)

    half = Decoder(dataclasses.replace(BASE, positions=RotaryConfig(layout="half")))
    reordered = jax.tree_util.tree_map_with_path(reorder, params)
    logits = apply(interleaved, params, TOKENS).logits
    np.testing.assert_allclose(apply(half, reordered, TOKENS).logits, logits, atol=1e-5)
    assert not np.allclose(apply(half, params, TOKENS).logits, logits, atol=1e-3)


def test_bfloat16_computes_in_bfloat16_and_keeps_parameters_float32():
    decoder = Decoder(dataclasses.replace(BASE, dtype="bfloat16"))
    params = random_params(decoder.config)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    hidden = jax.eval_shape(lambda p: decoder.apply({"params": p}, TOKENS).hidden, params)
    assert hidden.dtype == jnp.bfloat16
    wide = apply(Decoder(BASE), params, TOKENS).logits
    narrow = apply(decoder, params, TOKENS).logits
    assert narrow.dtype == jnp.float32
    error = float(jnp.abs(narrow - wide).max() / jnp.abs(wide).max())
    assert 1e-5 < error < 3e-2  # not float32 in disguise, and not broken
    assert init_cache(decoder.config, 1, 2)[0].key.dtype == jnp.bfloat16


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
    shapes = jax.eval_shape(Decoder(config).init, jax.random.key(0), jnp.zeros((1, 2), jnp.int32))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes["params"])) == count


def test_vocab_size_must_be_set():
    with pytest.raises(ConfigError, match="vocab_size must be set"):
        Decoder(dataclasses.replace(BASE, vocab_size=None)).init(jax.random.key(0), TOKENS)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (jnp.zeros((1, 17), jnp.int32), r"at most max_len=16, got shape \(1, 17\)"),
        (jnp.zeros((3,), jnp.int32), r"tokens must be \[B, T\], got shape \(3,\)"),
        (jnp.zeros((1, 3)), "tokens must be integer, got dtype float32"),
    ],
)
def test_wrong_tokens_are_refused(tokens, message):
    with pytest.raises(ShapeError, match=message):
        Decoder(BASE).init(jax.random.key(0), tokens)


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_unknown_tokens_are_refused_where_they_are_known_and_real(kind):
    unknown = BASE.vocab_size
    tokens, lengths = kind([[1, 2, -1], [0, unknown, -1]]), kind([2, 1])

    def init(**inputs):
        return jax.eval_shape(lambda: Decoder(BASE).init(jax.random.key(0), tokens, **inputs))

    init(lengths=lengths)
    with pytest.raises(DataError, match=r"got -1 at index \(0, 2\); encode them"):
        init()
    with pytest.raises(DataError, match=rf"V-1 = {unknown - 1}, got {unknown} at index \(1, 1\)"):
        init(lengths=lengths + 1 - kind([1, 0]))


def test_learned_position_beyond_the_table_is_nan_not_another_row():
    decoder = Decoder(dataclasses.replace(BASE, positions="learned"))
    params = random_params(decoder.config)
    output = apply(decoder, params, TOKENS[:2, :1], positions=jnp.array([[0], [16]]))
    assert bool(jnp.isfinite(output.logits[0]).all())
    assert bool(jnp.isnan(output.logits[1]).all())
