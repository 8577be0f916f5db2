"""Places that a model lacks, and edits that it cannot make."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxformer.config import ExpertsConfig
from jaxformer.errors import ConfigError, ShapeError
from jaxformer.models import EncoderDecoder, Taps, Transformer
from tests.models.test_taps import CONFIG, B, H, OwnBlock, T, X


@pytest.mark.parametrize(
    ("taps", "changes", "parts", "error", "words"),
    [
        (lambda: Taps(read=("head_output",)), {}, {}, ConfigError,
         ["places of this Block: inputs, scores,", "'head_output'; did you mean 'head_outputs'?"]),
        (lambda: Taps(edit={"cross_scores": lambda x, layer: x}), {}, {}, ConfigError,
         ["got 'cross_scores'; did you mean 'scores'?"]),
        (lambda: Taps(read=("feed_forward_activations",)),
         {"experts": ExpertsConfig(num_experts=3, num_experts_per_token=2)}, {}, ConfigError,
         ["this Block", "got 'feed_forward_activations'"]),
        (lambda: Taps(read=("weights",)), {}, {"block": OwnBlock}, ConfigError,
         ["places of this OwnBlock: inputs, hidden; got 'weights'", "an argument tap"]),
        (lambda: Taps(read=("scores",)), {"attention_sinks": False},
         {"attention_fn": lambda query, key, value, **_: query}, ConfigError,
         ["scores of a custom attention_fn are not known", "use dot_product"]),
        (lambda: Taps(edit={"weights": lambda x, layer: x}), {"attention_sinks": False},
         {"attention_fn": lambda query, key, value, **_: query}, ConfigError,
         ["its weights cannot be edited", "use dot_product"]),
        (lambda: Taps(edit={"hidden": lambda x, layer: x[:1]}), {}, {}, ShapeError,
         ["edit of 'hidden' must return shape (2, 5, 12) and dtype float32", "(1, 5, 12)"]),
        (lambda: Taps(edit={"hidden": lambda x, layer: None}), {}, {}, ShapeError, ["NoneType"]),
        (lambda: Taps(read="hidden"), {}, {}, ConfigError, ["names of places", "got 'hidden'"]),
        (lambda: Taps(edit=("hidden",)), {}, {}, ConfigError, ["must be a dict from places"]),
        (lambda: ("hidden",), {}, {}, ConfigError, ["must be a models.Taps", "got tuple"]),
    ],
)  # fmt: skip
def test_what_a_model_lacks_is_refused_in_one_line(taps, changes, parts, error, words):
    config = dataclasses.replace(CONFIG, **{"value_head_dim": H, **changes})
    with pytest.raises(error) as caught:
        model = Transformer(config, **parts)
        jax.eval_shape(lambda: model.init(jax.random.key(0), X, taps=taps()))
    message = str(caught.value).split("\n--------------------")[0]
    assert len(message.splitlines()) == 1
    for word in words:
        assert word in message


def test_the_encoder_of_an_encoder_decoder_refuses_its_own_places():
    config = dataclasses.replace(CONFIG, architecture="encoder_decoder", vocab_size=11)
    model, tokens = EncoderDecoder(config), np.ones((B, T), int)
    with pytest.raises(ConfigError, match="got 'hiden'; did you mean 'hidden'"):
        taps = Taps(read=("encoder/hiden",))
        jax.eval_shape(lambda: model.init(jax.random.key(0), tokens, tokens, taps=taps))
