"""What a user brings to a model and does not fit is refused in one line."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError, ShapeError
from jaxformer.models import Decoder, EncoderDecoder, init_cache
from jaxformer.modules import Block, BlockOutput, Positions
from tests.models.own_parts import (
    BIAS,
    BOTH,
    CAPACITY,
    CONFIG,
    MASK,
    PATTERN,
    TOKENS,
    Angles,
    B,
    ParallelBlock,
    softmax_with_sink,
)


def decode(config=CONFIG, tokens=TOKENS, inputs=None, **parts):
    return lambda: jax.eval_shape(
        lambda: Decoder(config, **parts).init(jax.random.key(0), tokens, **(inputs or {}))
    )


def block_that_returns(make):
    """A block whose result is make(x)."""

    class OwnBlock(nn.Module):
        config: ModelConfig

        @nn.compact
        def __call__(self, x, context, **options):
            return make(nn.Dense(x.shape[-1])(x))

    return OwnBlock


class ArrayAttention(nn.Module):
    """An attention layer that returns an array."""

    config: ModelConfig

    def __call__(self, x, context, **options):
        return x


class KeptCache(nn.Module):
    """A block that returns the cache that it got."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x, context, *, cache=None, **options):
        return BlockOutput(nn.Dense(x.shape[-1])(x), cache=cache)


def no_structure(query, key, value):
    return value


@pytest.mark.parametrize(
    "row",
    [
        (decode(inputs={"mask": MASK[:, 0]}), ShapeError,
         "mask must broadcast to [..., N, T, S] = (2, 2, 7, 7)", "(2, 7, 7)", "mask[:, None]"),
        (decode(inputs={"mask": MASK[..., :3]}), ShapeError, "mask must", "(2, 1, 7, 3)"),
        (decode(inputs={"mask": BIAS}), ShapeError, "mask must be bool", "argument bias"),
        (decode(inputs={"bias": MASK}), ShapeError, "bias must be floating", "bool"),
        (decode(inputs={"mask": MASK, "cache": init_cache(CONFIG, B, CAPACITY)}), ShapeError,
         "mask must broadcast to [..., N, T, S] = (2, 2, 7, 13)", "(2, 1, 7, 7)"),
        (decode(inputs={"encoded_mask": MASK}), ShapeError,
         "encoded_mask is for a model with cross-attention"),
        (decode(attention_fn=no_structure), ConfigError, "attention_fn must take", "is_causal",
         "no_structure", "attention_mask"),
        (decode(attention_fn=lambda query, key, value, **_: value[..., :1]), ShapeError,
         "attention_fn must return [..., T, N, Hv] = (2, 7, 2, 6)", "(2, 7, 2, 1)"),
        (decode(attention_fn=lambda query, key, value, **_: value.astype("bfloat16")), ShapeError,
         "of dtype float32", "dtype bfloat16"),
        (decode(attention_fn=lambda query, key, value, **_: None), ShapeError,
         "attention_fn must return", "NoneType"),
        (decode(block=KeptCache, inputs={"cache": init_cache(CONFIG, B, CAPACITY)}), ConfigError,
         "got the cache that it was called with from KeptCache"),
        (decode(block=functools.partial(Block, attention=ArrayAttention)), ConfigError,
         "attention of a Block must", "from ArrayAttention", "MultiHeadOutput(output, cache)"),
        (decode(dataclasses.replace(CONFIG, layers=PATTERN)), ConfigError,
         "attention must be one of dot_product, got 'sink'", "attention_fn={'sink': "),
        (decode(attention_fn={"linear": softmax_with_sink}), ConfigError,
         "attention_fn has 'linear', which no layer names", "attention='linear'"),
        (decode(attention_fn="linear"), ConfigError, "must be a function, got 'linear'"),
        (lambda: jax.eval_shape(
             EncoderDecoder(BOTH, block=ParallelBlock).init, jax.random.key(0), TOKENS, TOKENS
         ), ConfigError, "must attend to it and return its cross_cache", "from ParallelBlock"),
        (decode(position_scheme=type("Wide", (Positions,), {
             "rotation": lambda self, positions, room: lambda query, key: (query, key[..., :1])
         })()), ShapeError, "a rotation must keep the key's shape (2, 7, 2, 6)"),
        (decode(position_scheme=type("Narrow", (Positions,), {
             "encoding": lambda self, positions: jnp.ones((*positions.shape, 5))
         })()), ShapeError, "encoding of the position scheme must", "(2, 7, 12)", "(2, 7, 5)"),
        (decode(position_scheme="alibi"), ConfigError, "position_scheme must be an instance of",
         "'alibi'", "config.positions"),
        (decode(position_scheme=Angles), ConfigError, "an instance of", "Angles"),
        (decode(inputs={"cache": init_cache(CONFIG, 3, CAPACITY)}), ShapeError,
         "cache[0].lengths must be [B=2], got shape (3,)"),
        (decode(block=block_that_returns(lambda x: x)), ConfigError, "must return a BlockOutput",
         "from OwnBlock"),
        (decode(block=block_that_returns(lambda x: BlockOutput(x[..., :5]))), ShapeError,
         "must return x [B, T, D] = (2, 7, 12)", "(2, 7, 5)", "OwnBlock"),
        (decode(
             block=block_that_returns(BlockOutput),
             inputs={"cache": init_cache(CONFIG, B, CAPACITY)},
         ), ConfigError, "must return its cache", "got none from OwnBlock"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused_in_one_line(row):
    call, error, *words = row
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value).split("\n--------------------")[0].splitlines()) == 1


def test_the_error_of_a_block_that_cannot_be_made_keeps_its_cause():
    def block(config, **options):
        return len(config)

    with pytest.raises(ConfigError, match="block must make a module") as raised:
        decode(block=block)()
    assert isinstance(raised.value.__cause__, TypeError)
