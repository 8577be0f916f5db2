"""FLOPs counted in traced programs: those worked out by hand, and those that XLA counts."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas
from jax.sharding import AxisType, PartitionSpec

from jaxformer.config import (
    ExpertsConfig,
    LoraConfig,
    ModelConfig,
    MuonConfig,
    ScheduleConfig,
)
from jaxformer.errors import ConfigError
from jaxformer.flops import count_model_flops
from jaxformer.models import Decoder, EncoderDecoder, MaskedLanguageModel
from jaxformer.planning import count_flops
from jaxformer.planning.settings import planned_model, trace_step
from jaxformer.runs.weights.shapes import param_shapes
from jaxformer.training import TrainState, language_model_loss, make_optimizer, make_train_step
from tests.small_config import model, small

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
# T = 16, D = 8, N = 2 heads of H = 4, F = 32, V = 5, L = 3 layers.
TINY = {"vocab_size": 5, "max_len": 16, "d_model": 8, "num_heads": 2, "num_layers": 3}
# Of one row: four kernels [8, 8]; scores and values of both heads; two kernels [8, 32]; the table.
PROJECTIONS, ATTENTION = 3 * 4 * 2 * 16 * 8 * 8, 3 * 2 * 2 * 2 * 16 * 16 * 4
FEED_FORWARD, LOGITS = 3 * 2 * 2 * 16 * 8 * 32, 2 * 16 * 8 * 5
FORWARD = PROJECTIONS + ATTENTION + FEED_FORWARD + LOGITS
STEP = 3 * FORWARD + 0.5 * ATTENTION  # the backward pass computes the scores again


def planned(changes, **settings):
    return planned_model(small(model=model(**TINY | changes), **settings))


def step_flops(model, rows):
    return trace_step(model.config, rows).flops


def forward_flops(model, rows):
    """FLOPs of a forward pass with its loss."""
    rng = jax.eval_shape(jax.random.key, 0)
    return count_flops(model.loss(0.0), param_shapes(model), model.batch_shapes(rows), rng)


def gradient_of(kind, config):
    """Gradient of the loss of a model, and the shapes of its parameters."""
    model = kind(config)
    batch = {name: jnp.zeros((ROWS, LENGTH), jnp.int32) for name in ("tokens", "labels")}
    if kind is EncoderDecoder:
        batch["source_tokens"] = jnp.zeros((ROWS, SOURCE), jnp.int32)
    params = jax.eval_shape(model.init_params, jax.random.key(0))
    loss = language_model_loss(model)
    return jax.grad(lambda params: loss(params, batch, jax.random.key(1))[0]), params


@pytest.mark.parametrize("name", MODELS)
def test_products_are_what_the_compiler_counts(name):
    kind, changes = MODELS[name]
    gradient, params = gradient_of(kind, ModelConfig(**SIZES | changes))
    counted = count_flops(gradient, params)
    compiled = jax.jit(gradient).lower(params).compile().cost_analysis()["flops"]
    # XLA counts norms, activations and softmax as well.
    assert 0.975 < counted / compiled < 1, counted / compiled


@pytest.mark.essential
@pytest.mark.parametrize("execution", ["scan", "loop"])
def test_products_of_a_decoder_are_those_by_hand(execution):
    decoder = planned({"layer_execution": execution})
    assert forward_flops(decoder, 7) == 7 * FORWARD
    assert step_flops(decoder, 7) == 7 * STEP


def test_remat_counts_what_the_backward_pass_computes_again():
    assert step_flops(planned({"remat": "dots"}), 7) == 7 * STEP
    # No gradient needs the result of the last product of a layer.
    full = 4 * PROJECTIONS + 4.5 * ATTENTION + 3.5 * FEED_FORWARD + 3 * LOGITS
    assert step_flops(planned({"remat": "full"}), 7) == 7 * full


def test_frozen_weights_save_one_product_of_three():
    lora = {"init_from": "elsewhere", "lora": LoraConfig(rank=2)}  # beside queries and values
    matrices = 3 * 2 * (2 * 16 * 8 * 2 + 2 * 16 * 2 * 8)
    frozen = 2 * FORWARD + 1.5 * ATTENTION + 3 * matrices
    assert step_flops(planned({}, **lora), 7) == 7 * frozen


def test_experts_count_for_the_tokens_that_chose_them():
    experts = ExpertsConfig(
        num_experts=5, num_experts_per_token=2, d_ff=24, num_shared_experts=3, shared_gate=True
    )
    mixed, tokens = planned({"experts": experts}), 64 * 16
    rows = (5 + (2 * tokens - 5) // 32) * 32  # in blocks of 32 rows of one expert
    assert 2 * tokens < rows < 1.1 * 2 * tokens
    router, expert = 3 * 2 * tokens * 8 * 5, 3 * 2 * 2 * rows * 8 * 24
    shared = 3 * 2 * tokens * (2 * 8 * 3 * 24 + 8)  # all tokens; the last is the gate
    rest_of_forward = 64 * (FORWARD - FEED_FORWARD)
    assert forward_flops(mixed, 64) == rest_of_forward + expert + router + shared
    # The backward pass computes the first of two products again; the outputs are kept.
    step = 64 * (STEP - 3 * FEED_FORWARD) + 3.5 * expert + 3 * (router + shared)
    assert step_flops(mixed, 64) == step


def test_chunked_attention_skips_blocks_of_hidden_pairs_and_dense_none():
    def attention(implementation, window=None):
        sizes = {"max_len": 1024, "local_window_size": window}
        changes = {"attention_implementation": implementation, **sizes}
        rest_of_forward = 64 * (FORWARD - ATTENTION)  # at 64 times the length
        return forward_flops(planned(changes), 1) - rest_of_forward

    assert attention("dense", window=100) == attention("dense") == ATTENTION * 64**2
    # Of two blocks of queries, the first sees one block of keys.
    assert attention("chunked") == attention("dense") * 3 / 4
    assert attention("chunked", window=100) < attention("chunked")


def product(x):
    return x @ x


SQUARE, PRODUCT = jax.ShapeDtypeStruct((3, 3), "float32"), 2 * 27


def test_control_flow_counts_what_runs():
    def loop(x):
        return jax.lax.fori_loop(0, 5, lambda _, x: product(x), x)

    def choice(x):
        branches = [product, lambda x: product(product(x)), jnp.sin]
        return jax.lax.switch(jnp.int32(x[0, 0]), branches, x)

    def platform(x):
        return jax.lax.platform_dependent(
            x, cpu=lambda x: product(product(x)), default=jax.checkpoint(product)
        )

    counts = [count_flops(function, SQUARE) for function in (loop, choice, platform)]
    assert counts == [PRODUCT * times for times in (5, 2, 1)]


def test_loops_of_unknown_length_are_refused_if_they_have_products():
    def until(step):
        return lambda x: jax.lax.while_loop(lambda x: x.sum() < 9, step, x)

    assert count_flops(until(jnp.sin), SQUARE) == 0
    with pytest.raises(ConfigError, match="known number of iterations.*fori_loop"):
        count_flops(until(product), SQUARE)


def test_products_count_on_all_devices_and_not_in_kernels():
    mesh = jax.make_mesh((4,), ("rows",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("rows")
    whole = jax.ShapeDtypeStruct((12, 3), "float32")
    mapped = jax.shard_map(product, mesh=mesh, in_specs=spec, out_specs=spec)
    assert count_flops(mapped, whole) == 4 * PRODUCT

    mesh = jax.make_mesh((2, 2), ("rows", "other"), axis_types=(AxisType.Auto,) * 2)
    half = jax.ShapeDtypeStruct((6, 3), "float32")
    mapped = jax.shard_map(product, mesh=mesh, in_specs=spec, out_specs=spec, axis_names={"rows"})
    assert count_flops(mapped, half) == 2 * PRODUCT

    def kernel(x, out):  # with a bound that only the program knows
        out[...] = jax.lax.fori_loop(0, x[0, 0].astype(int), lambda _, y: product(y), x[...])

    assert count_flops(pallas.pallas_call(kernel, out_shape=SQUARE), SQUARE) == 0


@pytest.mark.parametrize("remat", ["none", "dots", "full"])
@pytest.mark.parametrize("execution", ["scan", "loop"])
def test_model_flops_are_those_without_remat_and_optimizer(remat, execution):
    """Three products for one of the forward pass, in whichever way they are computed."""
    sizes = {"num_layers": 3, "d_model": 16, "num_heads": 2, "vocab_size": 11, "max_len": 8}
    config = ModelConfig(
        **sizes, remat=remat, layer_execution=execution, attention_implementation="dense"
    )
    decoder, optimizer = (
        Decoder(config),
        make_optimizer(MuonConfig(learning_rate=0.1), ScheduleConfig(decay_steps=9)),
    )
    tokens = jnp.zeros((2, 8), jnp.int32)
    state = jax.eval_shape(
        lambda: TrainState.create(decoder.init_params(jax.random.key(0)), optimizer)
    )
    loss, batch = language_model_loss(decoder), {"tokens": tokens, "labels": tokens}
    forward = count_flops(loss, state.params, batch, None)
    step = make_train_step(loss, optimizer, seed=0)
    assert count_model_flops(step, state, batch) == 3 * forward
    assert count_flops(step, state, batch) > 3 * forward  # with Muon's, and those of remat
