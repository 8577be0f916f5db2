import dataclasses

import numpy as np
import pytest

from jaxformer.config import ModelConfig, RelativeConfig
from jaxformer.models import Encoder
from tests import numpy_transformer as reference
from tests.models.compiled import apply_on_host as apply

B, T, VOCAB, CLASSES = 3, 7, 11, 5
BASE = ModelConfig(
    architecture="encoder", vocab_size=VOCAB, max_len=16, num_layers=2, d_model=12, num_heads=2,
    d_ff=17, layer_execution="loop",
)  # fmt: skip
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
    attention_weights = output.weights.self_attention
    assert attention_weights.shape == weights.shape and attention_weights.dtype == np.float32
    np.testing.assert_allclose(attention_weights, weights, rtol=0, atol=1e-5)
