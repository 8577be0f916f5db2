"""Arrays inside a model, read and edited by the name of their place."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jaxformer.config import LayerConfig, ModelConfig
from jaxformer.models import Decoder, EncoderDecoder, Taps, Transformer, init_cache
from jaxformer.modules import Block, BlockOutput
from tests import numpy_transformer as reference

B, T, N, K, H, V = 2, 5, 6, 3, 4, 7  # V: width of values
CONFIG = ModelConfig(
    max_len=16, num_layers=2, d_model=12, num_heads=N, num_kv_heads=K, head_dim=H,
    value_head_dim=V, d_ff=17, activation="swiglu", norm="rms_norm", use_bias=False,
    positions="none", attention_sinks=True, attention_softcap=2.0, layer_execution="loop",
)  # fmt: skip
RNG = np.random.default_rng(0)
X, OTHER = np.float32(RNG.standard_normal((2, B, T, 12)))
BIAS = np.float32(RNG.standard_normal((B, N, T, T)))
PLACES = (
    "inputs", "scores", "weights", "head_outputs", "attention_output", "feed_forward_activations",
    "feed_forward_output", "hidden",
)  # fmt: skip
MODEL = Transformer(CONFIG, causal=True)
SCANNED = Transformer(
    dataclasses.replace(CONFIG, layer_execution="scan", remat="full"), causal=True
)
MODELS = pytest.mark.parametrize("model", [MODEL, SCANNED], ids=["loop", "scan"])
PARAMS = reference.draw_params(MODEL, X)


@functools.partial(jax.jit, static_argnums=0)
def apply(model, x, taps=None, **inputs):
    return model.apply({"params": PARAMS}, x, taps=taps, **inputs)


def assert_close(result, expected, atol=1e-5):
    np.testing.assert_allclose(result, expected, rtol=0, atol=atol)


def recomputed(x, params):
    """Every place of one layer, in float64 NumPy."""
    places = {"inputs": x}
    attention, feed_forward = params["attention"], params["feed_forward"]

    def norm(x, scale):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + CONFIG.norm_eps) * scale

    def project(x, name, heads):
        return (x @ attention[f"{name}_kernel"]).reshape(B, T, heads, -1)

    normed = norm(x, params["attention_norm"]["scale"])
    query, key = project(normed, "query", N), project(normed, "key", K)
    value = project(normed, "value", K).repeat(N // K, axis=2)
    scores = np.einsum("btnh,bsnh->bnts", query, key.repeat(N // K, axis=2)) / np.sqrt(H)
    places["scores"] = 2 * np.tanh(scores / 2)
    exponentials = np.exp(places["scores"]) * np.tri(T)
    sinks = np.exp(attention["sinks"])[:, None, None]
    places["weights"] = exponentials / (exponentials.sum(-1, keepdims=True) + sinks)
    places["head_outputs"] = np.einsum("bnts,bsnv->btnv", places["weights"], value)
    places["attention_output"] = (
        places["head_outputs"].reshape(B, T, -1) @ attention["output_kernel"]
    )
    x = x + places["attention_output"]
    normed = norm(x, params["feed_forward_norm"]["scale"])
    gate = normed @ feed_forward["gate_kernel"]
    places["feed_forward_activations"] = (
        gate / (1 + np.exp(-gate)) * (normed @ feed_forward["up_kernel"])
    )
    places["feed_forward_output"] = places["feed_forward_activations"] @ feed_forward["down_kernel"]
    return places | {"hidden": x + places["feed_forward_output"]}


@pytest.mark.essential
@MODELS
def test_every_place_that_is_read_equals_a_plain_recomputation(model):
    """And reading changes nothing."""
    output = apply(model, X, Taps(read=PLACES))
    assert sorted(output.taps) == sorted(PLACES)
    x, layers = np.float64(X), reference.float64(PARAMS["stack"]["layers"])
    for layer in range(2):
        expected = recomputed(x, jax.tree.map(lambda leaf, i=layer: leaf[i], layers))
        for place in PLACES:
            array, visible = np.asarray(output.taps[place][layer]), True
            assert array.shape == expected[place].shape
            if place == "scores":
                visible = np.tri(T)  # elsewhere they mean nothing
            assert_close(array * visible, expected[place] * visible)
        x = expected["hidden"]
    np.testing.assert_array_equal(output.hidden, apply(model, X).hidden)


def loss_of(model, params, taps=None):
    return (model.apply({"params": params}, X, taps=taps).hidden * OTHER).sum()


@functools.cache
def scaled_kernels():
    """Losses with each head of layer 1 scaled to 0 in the output projection, and gradients."""

    def loss(factor, head):
        stack = PARAMS["stack"]["layers"]
        kernel = jnp.asarray(stack["attention"]["output_kernel"]).reshape(2, N, V, 12)
        kernel = kernel.at[1, head].multiply(factor).reshape(2, N * V, 12)
        layers = stack | {"attention": stack["attention"] | {"output_kernel": kernel}}
        return loss_of(MODEL, PARAMS | {"stack": {"layers": layers}})

    return jax.jit(jax.vmap(jax.value_and_grad(loss), in_axes=(None, 0)))(0.0, jnp.arange(N))


@MODELS
def test_edits_work_under_jit_grad_and_vmap(model):
    """A head ablated, all heads at once, and the gradient of the factor that does it."""

    def loss(factor, head):
        def scale(x, layer):
            return jnp.where(layer == 1, x.at[:, :, head].multiply(factor), x)

        return loss_of(model, PARAMS, Taps(edit={"head_outputs": scale}))

    losses = jax.jit(jax.vmap(jax.value_and_grad(loss), in_axes=(None, 0)))
    for result, expected in zip(losses(0.0, jnp.arange(N)), scaled_kernels(), strict=True):
        assert_close(result, expected, atol=1e-4)
        assert np.ptp(expected) > 0.1


@MODELS
def test_an_edit_of_scores_is_a_bias_and_cannot_unmask(model):
    edited = Taps(read=("weights",), edit={"scores": lambda x, layer: x + BIAS})
    output, expected = apply(model, X, edited), apply(model, X, Taps(read=("weights",)), bias=BIAS)
    assert_close(output.taps["weights"], expected.taps["weights"])
    assert_close(output.hidden, expected.hidden)
    assert np.triu(output.taps["weights"], 1).max() == 0 < output.taps["weights"].max()


@pytest.mark.essential
def test_edits_reach_what_is_computed_from_them():
    factors = {"weights": 2, "head_outputs": 3}
    edit = {p: lambda x, layer, f=f: jnp.where(layer == 0, f * x, x) for p, f in factors.items()}
    edit["feed_forward_activations"] = lambda x, layer: jnp.ones_like(x)
    edited, plain = (apply(MODEL, X, Taps(PLACES, edits)).taps for edits in (edit, {}))
    for place, factor in [("weights", 2), ("head_outputs", 6), ("attention_output", 6)]:
        assert_close(edited[place][0], factor * plain[place][0])
    down = PARAMS["stack"]["layers"]["feed_forward"]["down_kernel"].sum(axis=1)
    expected = np.broadcast_to(down[:, None, None], edited["feed_forward_output"].shape)
    assert_close(edited["feed_forward_output"], expected)


def test_taps_read_and_edit_with_a_cache():
    cache = init_cache(CONFIG, B, 8)
    taps = Taps(read=("hidden",), edit={"head_outputs": lambda x, layer: x * (layer + 2)})
    full = apply(MODEL, X, taps).taps["hidden"]
    first = apply(MODEL, X[:, :3], taps, cache=cache)
    then = apply(MODEL, X[:, 3:], taps, cache=first.cache)
    assert_close(jnp.concatenate([first.taps["hidden"], then.taps["hidden"]], axis=2), full)


def test_an_encoder_decoder_says_which_half_and_which_attention():
    config = dataclasses.replace(
        CONFIG, architecture="encoder_decoder", vocab_size=11, attention_sinks=False
    )
    model, source = EncoderDecoder(config), np.array([[4, 5, 6]])
    tokens = np.array([[1, 2, 3, 4, 5]])
    params = reference.draw_params(model, source, tokens)
    cross = ("cross_weights", "cross_head_outputs", "cross_attention_output", "cross_scores")
    taps = Taps(
        read=("encoder/hidden", "encoder/weights", "hidden", "weights", *cross),
        edit={"encoder/attention_output": lambda x, layer: 0 * x,
              "cross_head_outputs": lambda x, layer: x * (layer != 1)},
    )  # fmt: skip
    output = jax.jit(model.apply, static_argnames="return_weights")(
        {"params": params}, source, tokens, taps=taps, return_weights=True
    )
    shapes = {place: x.shape for place, x in output.taps.items()}
    assert shapes == {
        "encoder/hidden": (2, 1, 3, 12), "encoder/weights": (2, 1, N, 3, 3),
        "hidden": (2, 1, 5, 12), "weights": (2, 1, N, 5, 5), "cross_weights": (2, 1, N, 5, 3),
        "cross_scores": (2, 1, N, 5, 3), "cross_head_outputs": (2, 1, 5, N, V),
        "cross_attention_output": (2, 1, 5, 12),
    }  # fmt: skip
    self_weights, cross_weights = output.decoder_weights
    np.testing.assert_array_equal(output.taps["weights"], self_weights)
    np.testing.assert_array_equal(output.taps["cross_weights"], cross_weights)
    np.testing.assert_array_equal(output.taps["encoder/weights"], output.encoder_weights)
    assert_close(jax.nn.softmax(output.taps["cross_scores"]), cross_weights)
    crossed = np.asarray(output.taps["cross_attention_output"])
    assert crossed[0].any() and not crossed[1].any()


@pytest.mark.parametrize("remat", ["none", "full"])
@pytest.mark.parametrize("execution", ["loop", "scan"])
def test_taps_that_ask_for_nothing_cost_nothing(execution, remat):
    model = Transformer(
        dataclasses.replace(CONFIG, layer_execution=execution, remat=remat), causal=True
    )

    def program(**taps):
        return str(jax.make_jaxpr(lambda p: model.apply({"params": p}, X, **taps).hidden)(PARAMS))

    assert program(taps=Taps()) == program()
    assert program(taps=Taps(read=("scores",))) != program()


class OwnBlock(nn.Module):
    config: ModelConfig

    @nn.compact
    def __call__(self, x, context, *, cache, cross_cache, deterministic=True, return_weights=False):
        return BlockOutput(x)


@pytest.mark.parametrize("execution", ["loop", "scan"])
def test_edits_get_the_index_of_the_layer(execution):
    """With layers before the scan, two layers in each of its repeats, and one after it."""
    layers = {"first_layers": (LayerConfig(),), "layers": (LayerConfig(), LayerConfig())}
    config = dataclasses.replace(CONFIG, num_layers=6, layer_execution=execution, **layers)
    model = Transformer(config, block=OwnBlock)
    params = reference.draw_params(model, X)
    taps = Taps(read=("hidden",), edit={"hidden": lambda x, layer: jnp.full_like(x, layer)})
    hidden = jax.jit(model.apply)({"params": params}, X, taps=taps).taps["hidden"]
    assert hidden[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]


class OwnPlace(Block):
    def __call__(self, x, context, *, tap=None, **options):
        return super().__call__(
            tap("shifted", x + 1) if tap else x + 1, context, tap=tap, **options
        )


def test_own_blocks_add_places():
    model = Decoder(dataclasses.replace(CONFIG, vocab_size=11), block=OwnPlace)
    taps = Taps(read=("inputs", "shifted", "weights"))
    output, _ = jax.eval_shape(
        lambda: model.init_with_output(jax.random.key(0), np.ones((B, T), int), taps=taps)
    )
    assert output.taps["shifted"].shape == output.taps["inputs"].shape == (2, B, T, 12)


def test_equal_taps_have_equal_hashes_so_that_they_may_be_static():
    def edit(x, layer):
        return x

    first, second = Taps(("hidden",), {"scores": edit}), Taps(["hidden"], {"scores": edit})
    assert first == second and hash(first) == hash(second) != hash(Taps(("hidden",)))
