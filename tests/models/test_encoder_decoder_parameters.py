"""Parameters of an encoder-decoder, and which of its parts drop."""

import dataclasses
import functools

import jax
import pytest
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.models import EncoderDecoder
from jaxformer.modules import Stack
from tests.models.test_encoder_decoder import BASE, SOURCE, TOKENS, VARIANTS


def shapes_of(config):
    return jax.eval_shape(EncoderDecoder(config).init_params, jax.random.key(0))


def tables_of(config):
    flat = jax.tree_util.tree_leaves_with_path(shapes_of(config))
    names = {jax.tree_util.keystr(p, simple=True, separator="/"): leaf.shape for p, leaf in flat}
    return {name: shape for name, shape in names.items() if name.endswith("embedding")}


@pytest.mark.parametrize(
    ("options", "tables"),
    [
        ({}, {"embedding/embedding": (11, 12)}),
        ({"source_vocab_size": 13, "embedding_dim": 5},
         {"embedding/embedding": (11, 12), "source_embedding/embedding": (13, 5)}),
        ({"tied_embeddings": False},
         {"embedding/embedding": (11, 12), "embedding/output_embedding": (11, 12)}),
        ({"source_vocab_size": 13},
         {"embedding/embedding": (11, 12), "source_embedding/embedding": (13, 12)}),
        ({"source_vocab_size": 13, "tied_embeddings": False}, {
             "embedding/embedding": (11, 12),
             "embedding/output_embedding": (11, 12),
             "source_embedding/embedding": (13, 12),
         }),
    ],
)  # fmt: skip
def test_tables_are_shared_unless_the_config_says_otherwise(options, tables):
    assert tables_of(dataclasses.replace(BASE, **options)) == tables


@pytest.mark.parametrize(
    ("width", "hidden", "heads", "published"), [(512, 2048, 8, 65e6), (1024, 4096, 16, 213e6)]
)
def test_parameters_of_the_paper_are_as_many_as_by_hand(width, hidden, heads, published):
    """Vaswani et al. (2017), table 3: base and big, with 37,000 tokens for both languages."""
    config = ModelConfig(
        architecture="encoder_decoder", vocab_size=37_000, max_len=512, num_layers=6,
        d_model=width, num_heads=heads, d_ff=hidden, positions="sinusoidal",
        norm_position="post", activation="relu", scale_embeddings=True,
    )  # fmt: skip
    attention, norm = 4 * (width * width + width), 2 * width
    feed_forward = 2 * width * hidden + hidden + width
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    count = sum(leaf.size for leaf in jax.tree.leaves(shapes_of(config)))
    assert count == 37_000 * width + 6 * (encoder_layer + decoder_layer)
    assert abs(count / published - 1) < 0.03


@pytest.mark.parametrize("method", ["__call__", "hidden_states"])
@pytest.mark.parametrize("deterministic", [True, False])
def test_dropout_is_on_or_off_in_both_halves(method, deterministic):
    config = dataclasses.replace(BASE, **VARIANTS["paper"], dropout_rate=0.5)
    model, dropping = EncoderDecoder(config), []
    params = jax.eval_shape(model.init_params, jax.random.key(0))

    def record(call, args, kwargs, context):
        if isinstance(context.module, nn.Dropout):
            dropping.append(not context.module.deterministic and not kwargs.get("deterministic"))
        if isinstance(context.module, Stack) and context.method_name == "__call__":
            dropping.append(not kwargs["deterministic"])
        return call(*args, **kwargs)

    with nn.intercept_methods(record):
        apply = functools.partial(model.apply, method=method, deterministic=deterministic)
        rngs = {"dropout": jax.random.key(0)}
        jax.eval_shape(lambda params: apply({"params": params}, SOURCE, TOKENS, rngs=rngs), params)
    # Of each half, the stack and the embeddings; of every block, its sublayers.
    assert dropping == [not deterministic] * (2 * 2 + 1 * 2 + 2 * 3)
