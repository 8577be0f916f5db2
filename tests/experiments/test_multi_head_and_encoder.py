import dataclasses

import encoder_steps as script
import fused_heads
import numpy as np
import pytest
from multi_head_and_encoder import DOCUMENT

from jaxformer import functional
from tests.experiments.printed import assert_shows


def test_fused_layer_equals_the_documents_own_steps():
    """Its reshape, permute, chunk, mask and softmax, in float64, on two of the sentences."""
    layer = [np.asarray(part, np.float64) for part in fused_heads.draw_projection()]
    kernel, bias, output_kernel, output_bias = layer
    x = np.asarray(fused_heads.draw_inputs()[:2], np.float64)
    heads = (x @ kernel + bias).reshape(2, 50, 8, 192).transpose(0, 2, 1, 3)
    query, key, value = np.split(heads, 3, axis=-1)
    product = query @ key.transpose(0, 1, 3, 2) / 8 + np.triu(np.full((50, 50), -np.inf), k=1)
    attention = np.exp(product) / np.exp(product).sum(-1, keepdims=True)
    values = (attention @ value).transpose(0, 2, 1, 3)
    out = values.reshape(2, 50, 512) @ output_kernel + output_bias

    steps = {
        name: np.asarray(array)[:2] for name, array in fused_heads.attend_step_by_step().items()
    }
    params = fused_heads.to_params(fused_heads.draw_projection())
    np.testing.assert_allclose(steps["masked"], product, atol=2e-6)
    np.testing.assert_allclose(steps["attention"], attention, atol=1e-6)
    np.testing.assert_allclose(steps["values"], values, atol=2e-6)
    np.testing.assert_allclose(steps["out"], out, atol=2e-6)
    in_one_call = np.asarray(fused_heads.attend_in_one_call(params))[:2]
    np.testing.assert_allclose(in_one_call, out, atol=2e-6)


def test_fused_steps_have_the_shapes_that_are_printed():
    shapes = {name: array.shape for name, array in fused_heads.attend_step_by_step().items()}
    assert shapes == {
        "x": (30, 50, 512), "qkv": (30, 50, 1536), "query": (30, 50, 8, 64),
        "key": (30, 50, 8, 64), "value": (30, 50, 8, 64), "product": (30, 8, 50, 50),
        "masked": (30, 8, 50, 50), "attention": (30, 8, 50, 50), "values": (30, 50, 8, 64),
        "merged": (30, 50, 512), "out": (30, 50, 512),
    }  # fmt: skip
    assert fused_heads.mask_bytes() == {"document": 2_400_000, "causal": 2500}


def test_softmax_of_the_printed_scores_is_the_printed_weights():
    weights = fused_heads.softmax_of_printed_scores()
    np.testing.assert_allclose(weights, fused_heads.PRINTED_WEIGHTS, rtol=0, atol=5.1e-5)


def test_layer_norm_gives_the_printed_result_from_the_printed_statistics():
    inputs = script.inputs_of_printed_norm()
    normalized, words = functional.layer_norm(inputs)[0], np.asarray(inputs)
    np.testing.assert_allclose(normalized, script.PRINTED_NORMALIZED, rtol=0, atol=5.1e-5)
    drawn = [[0.8920, 0.5154, 0.1391], [0.4184, 0.7561, 0.4809]]
    np.testing.assert_allclose(words[0], drawn, rtol=0, atol=5.1e-5)
    # Their mean and root of variance + 1e-5 are those printed.
    mean, deviation = words[0].mean(-1), np.sqrt(np.float64(words[0]).var(-1) + 1e-5)
    np.testing.assert_allclose(mean, script.PRINTED_MEAN, rtol=0, atol=5.1e-5)
    np.testing.assert_allclose(deviation, script.PRINTED_STD, rtol=0, atol=5.1e-5)


def test_encoder_has_the_documents_sizes():
    config = script.encoder_config()
    assert (config.max_len, config.d_model, config.num_heads) == (50, 512, 8)
    assert (config.dropout_rate, config.ff_dim, config.num_layers) == (0.1, 2048, 5)
    assert fused_heads.BATCH == 30
    attention, feed_forward, norms = 4 * (512 * 512 + 512), 2 * 512 * 2048 + 2048 + 512, 4 * 512
    layers = 5 * (attention + feed_forward + norms)
    assert layers == 15_761_920
    assert script.count_parameters(config) == {"embedding": 512_000, "layers": layers}


@pytest.fixture(scope="module")
def encoded():
    """At full size it takes seconds, and shows no more."""
    config = dataclasses.replace(script.encoder_config(vocab_size=23), d_model=64, d_ff=128)
    result = script.encode(config, batch_size=3)
    return script.Encoded(*(np.asarray(part) for part in result))


def test_encoder_runs_and_ignores_padding(encoded):
    assert encoded.hidden.shape == (3, 50, 64)
    assert encoded.lengths.tolist() == [50, 49, 48]
    assert np.isfinite(encoded.hidden).all()
    real = np.arange(50) < encoded.lengths[:, None]
    np.testing.assert_array_equal(encoded.hidden[real], encoded.other_padding[real])
    assert (np.abs(encoded.hidden[~real] - encoded.other_padding[~real]).max(-1) > 0.1).all()
    # The last that is done is a norm.
    np.testing.assert_allclose(encoded.hidden[real].mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(encoded.hidden[real].var(-1), 1, atol=1e-3)


def test_document_shows_every_step_in_order(encoded, monkeypatch):
    monkeypatch.setattr(script, "encode", lambda config: encoded)
    assert assert_shows(DOCUMENT, 328) == ["multi_head_causal", "positions_10_by_6"]
    encoder = script.show_encoder().tables["Encoder"].as_text()
    assert encoder[2][1] == "15,761,920" and encoder[4][1] == "0"
