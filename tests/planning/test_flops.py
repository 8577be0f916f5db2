"""FLOPs by formula: those that XLA counts in the compiled step, where layers are unrolled."""

import jax
import jax.numpy as jnp
import pytest

from jaxformer.config import ExpertsConfig, LayerConfig, ModelConfig
from jaxformer.models import Decoder, EncoderDecoder, MaskedLanguageModel
from jaxformer.planning.flops import forward_flops, step_flops
from jaxformer.training import language_model_loss

# Wide against the vocabulary and the length, so that products outweigh what is done elementwise,
# which XLA counts, too.
SIZES = {"vocab_size": 509, "max_len": 64, "num_layers": 1, "d_model": 576, "num_heads": 6,
         "layer_execution": "loop", "attention_implementation": "dense"}  # fmt: skip
ROWS, LENGTH, SOURCE = 3, 61, 37
MODELS = {
    "decoder": (Decoder, {}),
    "grouped_swiglu": (Decoder, {"num_kv_heads": 2, "activation": "swiglu", "value_head_dim": 96,
                                 "embedding_dim": 64}),
    "remat_dots": (Decoder, {"remat": "dots", "d_ff": 1000}),
    "remat_full": (Decoder, {"remat": "full"}),
    "encoder": (MaskedLanguageModel, {"architecture": "encoder"}),
    "encoder_decoder": (
        EncoderDecoder, {"architecture": "encoder_decoder", "num_encoder_layers": 2}
    ),
}  # fmt: skip


def compiled_flops(kind, config):
    model = kind(config)
    batch = {name: jnp.zeros((ROWS, LENGTH), jnp.int32) for name in ("tokens", "labels")}
    if kind is EncoderDecoder:
        batch["source_tokens"] = jnp.zeros((ROWS, SOURCE), jnp.int32)
    inputs = {name: array for name, array in batch.items() if name != "labels"}
    params = jax.eval_shape(lambda key: model.init(key, **inputs), jax.random.key(0))["params"]
    loss = language_model_loss(model)
    gradient = jax.jit(jax.grad(lambda params: loss(params, batch, jax.random.key(1))[0]))
    return gradient.lower(params).compile().cost_analysis()["flops"]


@pytest.mark.parametrize(
    "name",
    MODELS,
)
def test_formula_is_what_the_compiler_counts(name):
    kind, changes = MODELS[name]
    config = ModelConfig(**SIZES | changes)
    source = SOURCE if kind is EncoderDecoder else None
    formula = step_flops(config, ROWS, LENGTH, source).total
    counted = compiled_flops(kind, config)
    # XLA counts norms, activations and softmax as well.
    assert 0.965 < formula / counted < 1.02, formula / counted


def test_frozen_weights_save_one_product_of_three():
    config = ModelConfig(**SIZES, remat="full")
    whole, forward = step_flops(config, ROWS, LENGTH), forward_flops(config, LENGTH).times(ROWS)
    frozen = step_flops(config, ROWS, LENGTH, frozen=True)
    assert frozen.attention == whole.attention
    for name in ("projections", "feed_forward", "output"):
        saved = getattr(whole, name) - getattr(frozen, name)
        assert saved == pytest.approx(getattr(forward, name))


def test_every_expert_counts_and_once_more_in_the_backward_pass():
    sizes = {"vocab_size": 5, "max_len": 16, "d_model": 8, "num_heads": 2, "num_layers": 3}
    one = forward_flops(ModelConfig(**sizes, d_ff=24), 16)
    experts = ExpertsConfig(num_experts=5, num_experts_per_token=2, d_ff=24)
    config = ModelConfig(**sizes, experts=experts)
    forward, router = forward_flops(config, 16), 3 * 2 * 16 * 8 * 5
    assert forward == one._replace(feed_forward=5 * one.feed_forward + router)
    step = forward.times(3)._replace(feed_forward=4 * forward.feed_forward)
    assert step_flops(config, 7, 16) == step.times(7)


def test_classifier_scores_each_row_once():
    sizes = {"vocab_size": 5, "max_len": 16, "d_model": 8, "num_heads": 2, "num_layers": 3}
    config = ModelConfig(**sizes, architecture="encoder", num_classes=7)
    assert forward_flops(config, 16).output == 2 * 8 * 7


def test_windows_count_the_pairs_in_them():
    sizes = {"vocab_size": 5, "max_len": 16, "d_model": 8, "num_heads": 2, "num_layers": 3}
    whole = forward_flops(ModelConfig(**sizes), 16)
    mixed = ModelConfig(
        **sizes, local_window_size=7, layers=(LayerConfig(), LayerConfig(local_window_size=3))
    )
    layer = whole.attention / 3
    assert forward_flops(mixed, 16) == whole._replace(attention=layer * (8 + 4 + 8) / 16)
    encoder = ModelConfig(**sizes, architecture="encoder", local_window_size=3)
    assert forward_flops(encoder, 16).attention == whole.attention * 7 / 16
