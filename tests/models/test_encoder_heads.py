"""Classifiers and masked language models: what stands on an encoder."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxformer.errors import ConfigError
from jaxformer.functional import pool
from jaxformer.models import (
    Decoder,
    Encoder,
    EncoderDecoder,
    MaskedLanguageModel,
    PooledEncoder,
    SequenceClassifier,
)
from tests import numpy_transformer as reference
from tests.models.compiled import apply_on_host as apply
from tests.models.compiled import compiled
from tests.models.test_encoder import (
    BASE,
    CLASSES,
    IS_REAL,
    LENGTHS,
    RNG,
    TOKENS,
    VARIANTS,
    VOCAB,
    B,
    T,
)


@pytest.fixture(scope="module")
def classifier():
    config = dataclasses.replace(BASE, num_classes=CLASSES, positions="sinusoidal")
    model = SequenceClassifier(config)
    params = reference.draw_params(model, TOKENS)
    return model, params, apply(model, params, TOKENS, lengths=LENGTHS)


def test_classifier_scores_the_mean_of_the_real_tokens(classifier):
    model, params, output = classifier
    assert output.logits.shape == (B, CLASSES) and output.logits.dtype == np.float32
    exact = reference.float64(params)
    hidden, _ = reference.encoder(model.config, exact["encoder"], TOKENS, LENGTHS)
    expected = exact["class_bias"] + np.stack(
        [h[:n].sum(0) / max(n, 1) for h, n in zip(hidden, LENGTHS, strict=True)]
    ) @ exact["class_kernel"]  # fmt: skip
    np.testing.assert_allclose(output.logits, expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(output.logits[2], params["class_bias"])  # an empty row
    # What padding holds changes no bit.
    other = np.where(IS_REAL, TOKENS, (TOKENS + 1) % VOCAB)
    again = apply(model, params, other, lengths=LENGTHS)
    np.testing.assert_array_equal(again.logits, output.logits)


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

    @compiled
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
    exact = reference.float64(params)
    hidden, _ = reference.encoder(config, exact["encoder"], TOKENS, LENGTHS)
    transformed = reference.norm(config, exact["norm"], reference.gelu(hidden @ exact["kernel"]))
    expected = 3 * np.tanh(transformed @ exact["encoder"]["embedding"]["embedding"].T / 3)
    np.testing.assert_allclose(output.logits[IS_REAL], expected[IS_REAL], rtol=0, atol=1e-5)
    np.testing.assert_allclose(output.hidden[IS_REAL], hidden[IS_REAL], rtol=0, atol=1e-5)

    @compiled
    def score(model, params):
        def read(model):
            hidden = model.hidden_states(TOKENS, lengths=LENGTHS).hidden
            return hidden, model.output_embedding().output_table()

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
    exact = reference.float64(params)
    hidden, _ = reference.encoder(config, exact["encoder"], TOKENS, LENGTHS, token_types=types)
    inner = reference.gelu(hidden @ exact["kernel"] + exact["bias"])
    expected = reference.logits(
        config, exact["encoder"]["embedding"], reference.norm(config, exact["norm"], inner)
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
    exact = reference.float64(params)
    hidden, _ = reference.encoder(config, exact["encoder"], TOKENS, LENGTHS)
    pooled = np.stack([
        h[0] * (n > 0) if config.pooling == "first" else h[:n].sum(0) / max(n, 1)
        for h, n in zip(hidden, LENGTHS, strict=True)
    ])  # fmt: skip
    pooler = exact["pooler"]
    projected = pooled @ pooler["kernel"] + pooler.get("bias", 0.0)
    assert ("bias" in pooler) == config.head_bias
    expected = {
        "tanh": np.tanh,
        "relu": lambda x: np.maximum(x, 0),
        "gelu": reference.gelu,
        "gelu_norm": lambda x: reference.norm(config, pooler["norm"], reference.gelu(x)),
    }[config.pooler](projected)
    np.testing.assert_allclose(output.pooled, expected, rtol=0, atol=1e-5)
    scores = expected @ exact["class_kernel"] + exact["class_bias"]
    np.testing.assert_allclose(output.logits, scores, rtol=0, atol=1e-5)
    alone = {name: params[name] for name in ("encoder", "pooler")}
    embedder = PooledEncoder(dataclasses.replace(config, num_classes=None))
    again = apply(embedder, alone, TOKENS, lengths=LENGTHS)
    np.testing.assert_array_equal(again.pooled, output.pooled)
    assert again.logits is None


def test_pooling_ignores_what_padding_holds():
    hidden = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    hidden[0, 2], hidden[1] = np.nan, np.nan
    lengths = jnp.array([2, 0])
    assert pool(jnp.asarray(hidden), lengths).tolist() == [[2, 3, 4, 5], [0] * 4]
    assert pool(jnp.asarray(hidden), lengths, pooling="first").tolist() == [[0, 1, 2, 3], [0] * 4]
    assert pool(jnp.asarray(hidden), lengths, pooling="last").tolist() == [[4, 5, 6, 7], [0] * 4]
    longer = pool(jnp.asarray(hidden[:1, :2]), jnp.array([5]), pooling="last")
    assert longer.tolist() == pool(jnp.asarray(hidden[:1, :2]), pooling="last").tolist()
    assert longer.tolist() == [[4, 5, 6, 7]]


def test_encoder_has_an_output_table_only_where_something_is_scored_against_it():
    def tables(make, **options):
        config = dataclasses.replace(BASE, tied_embeddings=False, **options)
        shapes = nn.unbox(jax.eval_shape(make(config).init, jax.random.key(0), TOKENS))["params"]
        return sorted(shapes["encoder"]["embedding"])

    assert tables(MaskedLanguageModel) == ["embedding", "output_embedding"]
    assert tables(SequenceClassifier, num_classes=2) == ["embedding"]


def test_encoder_of_a_classifier_scores_no_tokens():
    model = Encoder(dataclasses.replace(BASE, num_classes=2))
    params = reference.draw_params(model, TOKENS)
    for method in (
        lambda model: model.logits(np.ones((1, 12), np.float32)),
        lambda model: model.output_embedding().output_table(),
    ):
        with pytest.raises(ConfigError, match="this embedding makes no logits"):
            model.apply({"params": params}, method=method)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (Encoder, {"architecture": "decoder"}, "needs architecture 'encoder', got 'decoder'"),
        (MaskedLanguageModel, {"architecture": "decoder"}, "needs architecture 'encoder'"),
        (MaskedLanguageModel, {"num_classes": 2}, "got num_classes=2; remove it, or use a Sequ"),
        (SequenceClassifier, {}, "num_classes must be set to build a classifier"),
        (Decoder, {}, "needs architecture 'decoder', got 'encoder'"),
        (Decoder, {"architecture": "decoder", "num_classes": 3}, "or use a SequenceClassifier"),
        (SequenceClassifier, {"architecture": "encoder_decoder", "num_classes": 3}, "encoder"),
        (Encoder, {"vocab_size": None}, "vocab_size must be set"),
        (EncoderDecoder, {}, "needs architecture 'encoder_decoder', got 'encoder'"),
    ],
)
def test_models_refuse_the_wrong_config(make, options, message):
    with pytest.raises(ConfigError, match=message):
        jax.eval_shape(make(dataclasses.replace(BASE, **options)).init, jax.random.key(0), TOKENS)
