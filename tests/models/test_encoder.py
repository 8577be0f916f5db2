import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxformer.config import ModelConfig, RelativeConfig
from jaxformer.errors import ConfigError, DataError, ShapeError
from jaxformer.functional import pool
from jaxformer.models import (
    Decoder,
    DecoderClassifier,
    Encoder,
    MaskedLanguageModel,
    PooledEncoder,
    SequenceClassifier,
    TokenClassifier,
)
from tests import numpy_transformer as reference

B, T, VOCAB, CLASSES = 3, 7, 11, 5
BASE = ModelConfig(
    architecture="encoder", vocab_size=VOCAB, max_len=16, num_layers=2, d_model=12, num_heads=2,
    d_ff=17, layer_execution="loop",
)  # fmt: skip
TOKEN_CLASSES = {"num_classes": 3, "pooling": "none"}
VARIANTS = {
    "bert": dict(
        positions="learned", norm_position="post", activation="gelu", num_layers=3,
        embedding_norm=True, num_token_types=2,
    ),
    "relative": dict(
        positions=RelativeConfig(num_buckets=6, max_distance=5), norm="rms_norm",
        local_window_size=3, use_bias=False, activation="relu",
    ),
    "alibi": dict(positions="alibi", num_heads=4, num_kv_heads=2, head_dim=5, activation="silu"),
}  # fmt: skip
RNG = np.random.default_rng(1)
TOKENS = RNG.integers(0, VOCAB, (B, T), np.int32)
LENGTHS = np.array([7, 4, 0])
IS_REAL = np.arange(T) < LENGTHS[:, None]

quickly_compiled = functools.partial(
    jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0}
)


@functools.partial(quickly_compiled, static_argnames="return_weights")
def compiled_apply(model, params, tokens, **arguments):
    return model.apply({"params": params}, tokens, **arguments)


def apply(*args, **arguments):
    return jax.device_get(compiled_apply(*args, **arguments))


@pytest.fixture(scope="module", params=VARIANTS)
def model(request):
    """A looped encoder, its parameters, and what it gives for unequal lengths."""
    model = Encoder(dataclasses.replace(BASE, **VARIANTS[request.param]))
    params = reference.draw_params(model, TOKENS)
    return model, params, apply(model, params, TOKENS, lengths=LENGTHS, return_weights=True)


def test_encoder_equals_a_float64_reference(model):
    model, params, output = model
    hidden, weights = reference.encoder(model.config, reference.float64(params), TOKENS, LENGTHS)
    assert output.logits is None
    assert output.hidden.shape == (B, T, 12) and output.hidden.dtype == np.float32
    np.testing.assert_allclose(output.hidden[IS_REAL], hidden[IS_REAL], rtol=0, atol=1e-5)
    found = output.weights.self_attention
    assert found.shape == weights.shape and found.dtype == np.float32
    np.testing.assert_allclose(found, weights, rtol=0, atol=1e-5)


def test_encoder_sees_both_sides_and_no_padding(model):
    model, _, output = model
    distance = np.abs(np.arange(T) - np.arange(T)[:, None])
    near = distance <= (model.config.local_window_size or T)
    seen, weights = near & IS_REAL[:, None] & IS_REAL[..., None], output.weights.self_attention
    np.testing.assert_array_equal(weights > 0, np.broadcast_to(seen[None, :, None], weights.shape))


def test_scanned_encoder_equals_the_looped_one(model):
    model, params, output = model
    scanned = Encoder(dataclasses.replace(model.config, layer_execution="scan", remat="dots"))
    again = apply(scanned, params, TOKENS, lengths=LENGTHS, return_weights=True)
    np.testing.assert_allclose(again.hidden[IS_REAL], output.hidden[IS_REAL], rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        again.weights.self_attention, output.weights.self_attention, rtol=0, atol=1e-5
    )


def test_encoder_keeps_packed_sequences_apart(model):
    model, params, _ = model
    if model.config.positions.kind == "learned":
        positions = np.tile(np.r_[0:4, 0:3], (B, 1))
    else:
        positions = np.tile(np.arange(T), (B, 1))  # a bias is counted by index in any case
    arguments = {"segment_ids": np.tile(np.repeat([5, 2], [4, 3]), (B, 1)), "positions": positions}
    packed = apply(model, params, TOKENS, **arguments).hidden
    alone = reference.float64(params)
    for part in (slice(0, 4), slice(4, T)):
        expected, _ = reference.encoder(model.config, alone, TOKENS[:, part])
        np.testing.assert_allclose(packed[:, part], expected, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def gradient():
    """|d hidden at t / d the embedding at s|, `[T, T]`, of a row with 5 real tokens."""
    config = dataclasses.replace(BASE, positions="none", layer_execution="scan", remat="full")
    model, tokens = Encoder(config), np.arange(T)[None]
    params = reference.draw_params(model, tokens)
    chosen = RNG.standard_normal((T, 12))

    @quickly_compiled
    def jacobian(model, params):
        def values(table):
            own = {**params, "embedding": {"embedding": table}}
            hidden = model.apply({"params": own}, tokens, lengths=np.array([5])).hidden
            return (hidden[0] * chosen).sum(-1)

        return jax.jacrev(values)(params["embedding"]["embedding"])

    return np.abs(jacobian(model, params))[:, :T].max(-1)


def test_every_real_token_depends_on_every_real_one_and_on_no_padding(gradient):
    assert (gradient[:5, :5] > 0).all()
    assert (gradient[:5, 5:] == 0).all()


@pytest.fixture(scope="module")
def classifier():
    config = dataclasses.replace(BASE, num_classes=CLASSES, positions="sinusoidal")
    model = SequenceClassifier(config)
    params = reference.draw_params(model, TOKENS)
    return model, params, apply(model, params, TOKENS, lengths=LENGTHS)


def test_classifier_scores_the_mean_of_the_real_tokens(classifier):
    model, params, output = classifier
    assert output.logits.shape == (B, CLASSES) and output.logits.dtype == np.float32
    own = reference.float64(params)
    hidden, _ = reference.encoder(model.config, own["encoder"], TOKENS, LENGTHS)
    expected = own["class_bias"] + np.stack(
        [h[:n].sum(0) / max(n, 1) for h, n in zip(hidden, LENGTHS, strict=True)]
    ) @ own["class_kernel"]  # fmt: skip
    np.testing.assert_allclose(output.logits, expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(output.logits[2], params["class_bias"])  # an empty row
    # What padding holds changes no bit.
    other = np.where(IS_REAL, TOKENS, (TOKENS + 1) % VOCAB)
    again = apply(model, params, other, lengths=LENGTHS)
    np.testing.assert_array_equal(again.logits, output.logits)


def test_a_row_alone_is_classified_as_in_the_batch(classifier):
    model, params, output = classifier
    alone = apply(model, params, TOKENS[1:2, : LENGTHS[1]])
    np.testing.assert_allclose(alone.logits[0], output.logits[1], rtol=0, atol=1e-5)


def test_lengths_beyond_the_tokens_are_those_of_full_rows(classifier):
    model, params, _ = classifier
    full = apply(model, params, TOKENS, lengths=np.full(B, T))
    beyond = apply(model, params, TOKENS, lengths=np.full(B, 2 * T))
    np.testing.assert_array_equal(beyond.logits, full.logits)


def test_classifier_drops_what_it_has_pooled():
    config = dataclasses.replace(
        BASE, num_classes=CLASSES, dropout_rate=0.5, layer_execution="scan"
    )
    model = SequenceClassifier(config)
    params = reference.draw_params(model, TOKENS)
    # A norm's bias is all that is left of the encoder: pooled it is 1, dropped 0 or 2.
    params = jax.tree.map(np.zeros_like, params)
    params["encoder"]["final_norm"]["bias"] += 1
    params["class_kernel"] += 2.0 ** np.arange(12)[:, None]

    @quickly_compiled
    def drop(model, params, rng):
        return model.apply(
            {"params": params}, TOKENS, deterministic=False, rngs={"dropout": rng}
        ).logits

    logits = np.array(drop(model, params, jax.random.key(0)))
    assert len(set(logits[:, 0])) == B and (logits % 2 == 0).all() and (logits > 0).all()
    np.testing.assert_array_equal(logits, np.broadcast_to(logits[:, :1], logits.shape))


def test_masked_language_model_scores_transformed_states_against_its_table():
    config = dataclasses.replace(BASE, logit_softcap=3.0, norm_position="post", positions="learned")
    model = MaskedLanguageModel(config)
    params = reference.draw_params(model, TOKENS)
    output = apply(model, params, TOKENS, lengths=LENGTHS)
    assert output.logits.shape == (B, T, VOCAB) and output.logits.dtype == np.float32
    own = reference.float64(params)
    hidden, _ = reference.encoder(config, own["encoder"], TOKENS, LENGTHS)
    transformed = reference.norm(config, own["norm"], reference.gelu(hidden @ own["kernel"]))
    expected = 3 * np.tanh(transformed @ own["encoder"]["embedding"]["embedding"].T / 3)
    np.testing.assert_allclose(output.logits[IS_REAL], expected[IS_REAL], rtol=0, atol=1e-5)
    np.testing.assert_allclose(output.hidden[IS_REAL], hidden[IS_REAL], rtol=0, atol=1e-5)

    @quickly_compiled
    def score(model, params):
        def read(model):
            return model.hidden_states(TOKENS, lengths=LENGTHS).hidden, model.output_table()

        return nn.apply(read, model)({"params": params})

    states, table = jax.device_get(score(model, params))
    np.testing.assert_allclose(states[IS_REAL], transformed[IS_REAL], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(table, params["encoder"]["embedding"]["embedding"])


@pytest.mark.essential
def test_bert_with_all_its_biases_and_token_types_equals_a_float64_reference():
    config = dataclasses.replace(
        BASE, **VARIANTS["bert"] | dict(num_layers=1), head_bias=True, output_bias=True
    )
    model, types = MaskedLanguageModel(config), RNG.integers(0, 2, (B, T))
    params = reference.draw_params(model, TOKENS)
    output = apply(model, params, TOKENS, lengths=LENGTHS, token_types=types)
    own = reference.float64(params)
    hidden, _ = reference.encoder(config, own["encoder"], TOKENS, LENGTHS, token_types=types)
    inner = reference.gelu(hidden @ own["kernel"] + own["bias"])
    expected = reference.logits(
        config, own["encoder"]["embedding"], reference.norm(config, own["norm"], inner)
    )
    np.testing.assert_allclose(output.logits[IS_REAL], expected[IS_REAL], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        dict(pooling="first", pooler="tanh", head_bias=True),
        dict(pooling="first", pooler="relu", head_bias=True),
        dict(pooling="first", pooler="gelu", head_bias=True),
        dict(pooling="mean", pooler="gelu_norm", norm_bias=False),
    ],
    ids=lambda options: options["pooler"],
)
def test_pooler_projects_what_is_pooled(options):
    config = dataclasses.replace(BASE, num_classes=CLASSES, num_layers=1, **options)
    model = SequenceClassifier(config)
    params = reference.draw_params(model, TOKENS)
    output = apply(model, params, TOKENS, lengths=LENGTHS)
    own = reference.float64(params)
    hidden, _ = reference.encoder(config, own["encoder"], TOKENS, LENGTHS)
    pooled = np.stack([
        h[0] * (n > 0) if config.pooling == "first" else h[:n].sum(0) / max(n, 1)
        for h, n in zip(hidden, LENGTHS, strict=True)
    ])  # fmt: skip
    pooler = own["pooler"]
    projected = pooled @ pooler["kernel"] + pooler.get("bias", 0.0)
    assert ("bias" in pooler) == config.head_bias
    expected = {
        "tanh": np.tanh,
        "relu": lambda x: np.maximum(x, 0),
        "gelu": reference.gelu,
        "gelu_norm": lambda x: reference.norm(config, pooler["norm"], reference.gelu(x)),
    }[config.pooler](projected)
    np.testing.assert_allclose(output.pooled, expected, rtol=0, atol=1e-5)
    scores = expected @ own["class_kernel"] + own["class_bias"]
    np.testing.assert_allclose(output.logits, scores, rtol=0, atol=1e-5)
    alone = {name: params[name] for name in ("encoder", "pooler")}
    embedder = PooledEncoder(dataclasses.replace(config, num_classes=None))
    again = apply(embedder, alone, TOKENS, lengths=LENGTHS)
    np.testing.assert_array_equal(again.pooled, output.pooled)
    assert again.logits is None


def test_pooling_ignores_what_padding_holds_and_refuses_what_is_no_lengths():
    hidden = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    hidden[0, 2], hidden[1] = np.nan, np.nan
    lengths = jnp.array([2, 0])
    assert pool(jnp.asarray(hidden), lengths).tolist() == [[2, 3, 4, 5], [0] * 4]
    assert pool(jnp.asarray(hidden), lengths, pooling="first").tolist() == [[0, 1, 2, 3], [0] * 4]
    assert pool(jnp.asarray(hidden), lengths, pooling="last").tolist() == [[4, 5, 6, 7], [0] * 4]
    longer = pool(jnp.asarray(hidden[:1, :2]), jnp.array([5]), pooling="last")
    assert longer.tolist() == pool(jnp.asarray(hidden[:1, :2]), pooling="last").tolist()
    assert longer.tolist() == [[4, 5, 6, 7]]
    with pytest.raises(ConfigError, match="pooling must be 'mean', 'first' or 'last', got 'max'"):
        pool(jnp.asarray(hidden), pooling="max")
    with pytest.raises(ShapeError, match=r"lengths must be \[B=2\], got shape \(3,\)"):
        pool(jnp.asarray(hidden), jnp.ones(3, int))


@pytest.mark.parametrize(
    ("types", "error", "words"),
    [
        (np.full((B, T), 2), DataError, "token_types must be in 0 .. V-1 = 1, got 2"),
        (np.zeros((B, 2), int), ShapeError, "token_types must be [B=3, T=7], got shape (3, 2)"),
        (None, ShapeError, "token_types are for a model with num_token_types"),
    ],
)
def test_wrong_token_types_are_refused(types, error, words):
    count = None if types is None else 2
    config = dataclasses.replace(BASE, num_token_types=count)
    with pytest.raises(error, match=re.escape(words)):
        run(
            Encoder, TOKENS, config=config, token_types=np.zeros((B, T)) if count is None else types
        )


def test_encoder_of_the_third_tutorial_has_its_shape():
    """30 sentences of 50 tokens, 5 layers as in the paper's base model."""
    config = ModelConfig(
        architecture="encoder", vocab_size=100, max_len=50, num_layers=5, d_model=512,
        num_heads=8, d_ff=2048, positions="sinusoidal", norm_position="post", activation="relu",
        scale_embeddings=True,
    )  # fmt: skip
    model = Encoder(config)
    full, _ = jax.eval_shape(model.init_with_output, jax.random.key(0), np.zeros((30, 50), int))
    assert full.hidden.shape == (30, 50, 512)
    params = jax.tree.map(np.asarray, reference.draw_params(model, TOKENS, std=0.02))
    hidden = apply(model, params, TOKENS[:2, :3]).hidden
    assert hidden.shape == (2, 3, 512) and np.isfinite(hidden).all()


def test_encoder_has_an_output_table_only_where_something_is_scored_against_it():
    def tables(make, **options):
        config = dataclasses.replace(BASE, tied_embeddings=False, **options)
        shapes = jax.eval_shape(make(config).init, jax.random.key(0), TOKENS)["params"]
        return sorted(shapes["encoder"]["embedding"])

    assert tables(MaskedLanguageModel) == ["embedding", "output_embedding"]
    assert tables(SequenceClassifier, num_classes=2) == ["embedding"]


@pytest.mark.parametrize("make", [MaskedLanguageModel, SequenceClassifier])
def test_logits_of_a_bfloat16_encoder_are_float32(make):
    classes = CLASSES if make is SequenceClassifier else None
    config = dataclasses.replace(BASE, dtype="bfloat16", num_classes=classes)
    output, variables = run(make, TOKENS, config=config, method="init_with_output")
    assert output.hidden.dtype == jnp.bfloat16 and output.logits.dtype == jnp.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {np.dtype("float32")}


def test_encoder_of_a_classifier_scores_no_tokens():
    model = Encoder(dataclasses.replace(BASE, num_classes=2))
    params = reference.draw_params(model, TOKENS)
    for method, arguments in (("logits", [np.ones((1, 12), np.float32)]), ("output_table", [])):
        with pytest.raises(ConfigError, match="this embedding makes no logits"):
            model.apply({"params": params}, *arguments, method=method)


def run(make, *args, config=BASE, method="init", **arguments):
    init = getattr(make(config), method)
    return jax.eval_shape(lambda: init(jax.random.key(0), *args, **arguments))


CLASSIFYING = dataclasses.replace(BASE, num_classes=2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: run(Encoder, np.zeros((1, 17), int)), ["at most max_len=16", "(1, 17)"]),
        (lambda: run(Encoder, TOKENS[0]), ["tokens must be [B, T], got shape (7,)"]),
        (lambda: run(Encoder, TOKENS * 1.0), ["tokens must be integer, got dtype float64"]),
        (
            lambda: run(Encoder, TOKENS, lengths=np.array([1, 2])),
            ["lengths must be [B=3], got shape (2,)"],
        ),
        (
            lambda: run(SequenceClassifier, TOKENS, config=CLASSIFYING, lengths=np.ones(B)),
            ["lengths must be integer, got dtype float64"],
        ),
        (
            lambda: run(Encoder, TOKENS, positions=TOKENS[:, :2]),
            ["positions must be [B=3, T=7]", "(3, 2)"],
        ),
        (
            lambda: run(Encoder, TOKENS, segment_ids=TOKENS[:, :2]),
            ["segment_ids must be [B=3, T=7]", "(3, 2)"],
        ),
    ],
)
def test_wrong_inputs_are_refused_by_name(call, words):
    with pytest.raises(ShapeError) as error:
        call()
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (Encoder, {"architecture": "decoder"}, "needs architecture 'encoder', got 'decoder'"),
        (MaskedLanguageModel, {"architecture": "decoder"}, "needs architecture 'encoder'"),
        (MaskedLanguageModel, {"num_classes": 2}, "got num_classes=2; remove it, or use a Sequ"),
        (SequenceClassifier, {}, "num_classes must be set to build a classifier"),
        (Decoder, {}, "needs architecture 'decoder', got 'encoder'"),
        (Decoder, {"architecture": "decoder", "num_classes": 3}, "or use a DecoderClassifier"),
        (SequenceClassifier, TOKEN_CLASSES, "another pooling, or use a TokenClassifier"),
        (TokenClassifier, {"num_classes": 3}, "got pooling='mean'; set pooling='none', or use a S"),
        (DecoderClassifier, {}, "needs architecture 'decoder', got 'encoder'"),
        (DecoderClassifier, {"architecture": "decoder"}, "num_classes must be set to build a"),
        (Encoder, {"vocab_size": None}, "vocab_size must be set"),
    ],
)
def test_models_refuse_the_wrong_config(make, options, message):
    with pytest.raises(ConfigError, match=message):
        run(make, TOKENS, config=dataclasses.replace(BASE, **options))
