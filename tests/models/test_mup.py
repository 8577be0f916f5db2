"""μP: initial weights, scales and learning rates by width, and updates that do not grow with it."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import pytest
from flax import traverse_util

from jaxformer.config import (
    AdamWConfig,
    ExpertsConfig,
    LionConfig,
    ModelConfig,
    MupConfig,
    ScheduleConfig,
    SgdConfig,
)
from jaxformer.errors import ConfigError
from jaxformer.interop import HuggingFaceModel, load_huggingface, save_huggingface
from jaxformer.models import Decoder, EncoderDecoder, SequenceClassifier
from jaxformer.training import language_model_loss, make_optimizer, mup_factors
from jaxformer.training import losses as losses_module

NARROW = ModelConfig(
    vocab_size=13, max_len=8, num_layers=2, d_model=16, num_heads=2, layer_execution="scan"
)
TOKENS = jnp.arange(16).reshape(2, 8) % 13


def widened(factor, base=NARROW, **changes):
    """The base, wider by a factor, with μP."""
    mup = MupConfig(d_model=base.d_model)
    changes = {"d_model": factor * base.d_model, "mup": mup, **changes}
    return dataclasses.replace(base, **changes)


def variables_of(config, model=Decoder):
    return {"params": model(config).init_params(jax.random.key(0))}


def parameters(config, model=Decoder):
    return traverse_util.flatten_dict(variables_of(config, model)["params"], sep="/")


def logits_of(config, variables):
    return jax.jit(Decoder(config).apply)(variables, TOKENS).logits


def short(path):
    """Name of a parameter, with that of the shared experts."""
    return path[path.find("shared/") if "shared/" in path else path.rfind("/") + 1 :]


def spreads(flat):
    return {path: float(leaf.std()) for path, leaf in flat.items() if leaf.std() > 0}


def test_a_model_as_wide_as_its_base_is_the_model_without_mup():
    config = widened(1, scale_embeddings=True)
    plain = dataclasses.replace(config, mup=None)
    chex.assert_trees_all_equal(parameters(config), parameters(plain))
    logits = [
        logits_of(config_of_model, variables_of(plain)) for config_of_model in (config, plain)
    ]
    chex.assert_trees_all_close(*logits, atol=1e-6)


def test_initial_weights_of_kernels_shrink_with_the_width_of_their_input():
    base = spreads(parameters(NARROW))
    ratios = {
        path.rpartition("/")[2]: spread / base[path]
        for path, spread in spreads(parameters(widened(16))).items()
    }
    kernels = ("query", "key", "value", "output", "up", "down")
    expected = dict.fromkeys([f"{name}_kernel" for name in kernels], 0.25) | {"embedding": 1.0}
    assert ratios == pytest.approx(expected, rel=0.1)


def test_a_kernel_whose_output_does_not_grow_shrinks_by_the_whole_ratio():
    config = dataclasses.replace(NARROW, num_classes=3, head_dim=8, num_kv_heads=1)
    mup = MupConfig(d_model=16, num_heads=2, num_kv_heads=1, head_dim=8)
    wide = dataclasses.replace(config, d_model=256, num_heads=32, mup=mup)
    base = spreads(parameters(config, SequenceClassifier))
    wide_spreads = spreads(parameters(wide, SequenceClassifier))
    assert wide_spreads["class_kernel"] / base["class_kernel"] == pytest.approx(1 / 16, rel=0.2)
    key = "stack/layers/attention/key_kernel"
    assert wide_spreads[key] / base[key] == pytest.approx(1 / 16, rel=0.1)


def test_experts_and_untied_tables_follow_the_same_rules():
    experts = ExpertsConfig(
        num_experts=4, num_experts_per_token=2, num_shared_experts=2, shared_gate=True
    )
    config = dataclasses.replace(NARROW, experts=experts, tied_embeddings=False)
    base, wide = (
        spreads(parameters(config_of_model)) for config_of_model in (config, widened(16, config))
    )
    ratios = {short(path): spread / base[path] for path, spread in wide.items()}
    narrow = [ratios[f"{name}_kernel"] for name in ("router", "shared_weight")]
    assert narrow == pytest.approx([1 / 16] * 2, rel=0.4)
    kernels = [ratios[f"{name}_kernel"] for name in ("up", "down", "shared/up", "shared/down")]
    assert kernels == pytest.approx([0.25] * 4, 0.1)
    tables = [ratios[name] for name in ("embedding", "output_embedding")]
    assert tables == pytest.approx([1, 1], 0.1)
    factors = mup_factors(parameters(widened(16, config)), parameters(config))
    by_name = {short(path): factor for path, factor in factors.items()}
    assert {name for name, factor in by_name.items() if factor == 1 / 16} == {
        "router_kernel", "query_kernel", "key_kernel", "value_kernel", "output_kernel", "up_kernel",
        "down_kernel", "shared/up_kernel", "shared/down_kernel", "shared_weight_kernel",
    }  # fmt: skip
    assert by_name["embedding"] == by_name["output_embedding"] == by_name["up_bias"] == 1.0


@pytest.mark.parametrize(
    "changes, factors",
    [
        ({}, (8**0.5 / 32, 0.25, 1.0)),
        ({"attention_scale": 0.5, "logit_scale": 3.0}, (0.5 / 4, 0.75, 1.0)),
        ({"scale_embeddings": True}, (8**0.5 / 32, 0.25, 4.0)),
        ({"embedding_scale": 7.0, "tied_embeddings": False}, (8**0.5 / 32, 0.25, 7.0)),
        # Heads that grow in number and not in width; a table that does not grow.
        (
            {"num_heads": 8, "embedding_dim": 16, "mup": MupConfig(
                d_model=16, num_heads=2, embedding_dim=16)},
            (8**-0.5, 1.0, 1.0),
        ),
    ],
)  # fmt: skip
def test_scales_are_those_of_the_base_by_its_widths(changes, factors):
    config = widened(4, **changes)
    scales = config.attention_factor, config.logit_factor, config.embedding_factor
    assert scales == pytest.approx(factors)


def test_logits_have_the_scale_of_the_targets_table_not_of_the_sources():
    config = widened(
        4, architecture="encoder_decoder", source_vocab_size=11, embedding_dim=8,
        mup=MupConfig(d_model=16, embedding_dim=8),
    )  # fmt: skip
    configs = config, config.target_embedding, config.without_mup
    assert [config.logit_factor for config in configs] == [0.25, 0.25, 0.25]


def test_without_mup_the_same_parameters_compute_the_same():
    config = widened(2, scale_embeddings=True, logit_scale=0.5)
    variables = variables_of(config)
    expected = logits_of(config, variables)
    chex.assert_trees_all_close(logits_of(config.without_mup, variables), expected, atol=1e-6)
    other = dataclasses.replace(config, mup=None)
    assert abs(logits_of(other, variables) - expected).max() > 1e-4


def test_losses_in_chunks_have_the_scale_of_the_logits(monkeypatch):
    config = widened(2, logit_scale=5.0)
    params, batch = variables_of(config)["params"], {"tokens": TOKENS, "labels": TOKENS}
    losses = []
    for limit in (losses_module._MAX_LOGITS, 0):
        monkeypatch.setattr(losses_module, "_MAX_LOGITS", limit)
        losses.append(float(jax.jit(language_model_loss(Decoder(config)))(params, batch, None)[0]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_cross_attention_has_the_scale_of_its_width():
    config = widened(2, architecture="encoder_decoder", num_layers=1, init_std=0.3)
    variables = variables_of(config, EncoderDecoder)
    plain = dataclasses.replace(config, mup=None, attention_scale=config.attention_factor,
                                logit_scale=config.logit_factor)  # fmt: skip
    chex.assert_trees_all_close(
        *(
            jax.jit(EncoderDecoder(config_of_model).apply)(variables, TOKENS, TOKENS).logits
            for config_of_model in (config, plain)
        ),
        atol=1e-6,
    )


def test_a_saved_model_has_the_scales_of_its_width(tmp_path):
    config = widened(2, norm="rms_norm", activation="swiglu", use_bias=False, d_ff=64,
                     mup=MupConfig(d_model=16, d_ff=32))  # fmt: skip
    variables = variables_of(config)
    assert save_huggingface(tmp_path, HuggingFaceModel(config, variables["params"])) == "granite"
    loaded = load_huggingface(tmp_path)
    logits = logits_of(loaded.model.config, {"params": loaded.params})
    chex.assert_trees_all_close(logits, logits_of(config, variables), atol=1e-5)


@pytest.mark.parametrize("name", ["adamw", "lion"])
def test_a_step_multiplies_the_learning_rate_of_kernels_and_not_their_decay(name):
    make = {"adamw": AdamWConfig, "lion": LionConfig}[name]
    config = make(learning_rate=0.1, weight_decay=0.5, clip_norm=0)
    schedule = ScheduleConfig(name="constant")
    params = {"up_kernel": jnp.full((8, 4), 3.0), "scale": jnp.ones(4)}
    factors = mup_factors(params, {"up_kernel": jnp.ones((2, 1)), "scale": jnp.ones(1)})
    optimizer = make_optimizer(config, schedule, factors)
    gradients = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 7.0), params)
    updates, _ = optimizer.update(gradients, optimizer.init(params), params)
    chex.assert_trees_all_close(updates["up_kernel"], jnp.full((8, 4), -0.1 * (1 / 4 + 0.5 * 3)))
    chex.assert_trees_all_close(updates["scale"], jnp.full(4, -0.1))


def test_factors_need_an_optimizer_that_does_not_depend_on_the_gradients_size():
    with pytest.raises(ConfigError, match="need the optimizer 'adamw' or 'lion', got 'sgd'"):
        make_optimizer(SgdConfig(learning_rate=0.1), ScheduleConfig(name="constant"), {"w": 1.0})


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"d_ff": 64}, "mup must state d_ff of the base model, since the model does, got d_ff=64"),
        ({"num_heads": 32, "d_model": 64}, "the base model of mup is impossible: d_model must be"),
        (
            {"experts": ExpertsConfig(num_experts=2, num_experts_per_token=1, d_ff=8)},
            "experts.d_ff has no width of the base model in mup, got 8",
        ),
    ],
)
def test_impossible_bases_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        widened(4, **changes)
