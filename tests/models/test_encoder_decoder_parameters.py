"""Parameters of an encoder-decoder, and which of its parts drop."""

import dataclasses
import functools

import jax
import pytest
from flax import linen as nn

from jaxformer.models import EncoderDecoder
from jaxformer.modules import Stack
from tests.models.test_encoder_decoder import BASE, SOURCE, TOKENS, VARIANTS


def tables_of(config):
    shapes = jax.eval_shape(EncoderDecoder(config).init_params, jax.random.key(0))
    flat = jax.tree_util.tree_leaves_with_path(shapes)
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
