"""The positions of models, taken from parameters of the models' own structure."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from jaxformer import runs
from jaxformer.config import (
    LayerConfig,
    LinearScalingConfig,
    ModelConfig,
    RelativeConfig,
    RotaryConfig,
)
from jaxformer.errors import ConfigError
from jaxformer.functional import AlibiBias, alibi_slopes, rotary_tables, sinusoidal_positions
from jaxformer.functional.positions.scaling import LinearScaling
from jaxformer.models import Decoder, EncoderDecoder, MaskedLanguageModel, SequenceClassifier

MODELS = {
    "decoder": Decoder,
    "masked": MaskedLanguageModel,
    "classifier": SequenceClassifier,
    "encoder_decoder": EncoderDecoder,
}


def model(kind, positions, depth=1, **options):
    """A config, and parameters of its model, drawn without computing anything of the model."""
    if kind == "classifier":
        options["num_classes"] = 2
    config = ModelConfig(
        architecture="encoder" if kind in ("masked", "classifier") else kind, vocab_size=7,
        max_len=11, num_layers=depth, d_model=6, num_heads=3, positions=positions, **options,
    )  # fmt: skip
    shapes = jax.eval_shape(MODELS[kind](config).init_params, jax.random.key(0))
    rng = np.random.default_rng(0)
    draw = lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype)  # noqa: E731
    return config, jax.tree.map(draw, shapes)


@pytest.mark.parametrize("kind", MODELS)
def test_positions_without_parameters_are_those_of_the_functions(kind):
    config, params = model(kind, "sinusoidal")
    (encoding,) = runs.model_positions(config, params, 5).values()
    assert encoding.kind == "sinusoidal" and encoding.distances is None
    np.testing.assert_array_equal(encoding.values, sinusoidal_positions(5, 6))
    rotary = dataclasses.replace(
        config, positions=RotaryConfig(base=50.0, scaling=LinearScalingConfig(factor=2.0))
    )
    encoding = runs.model_positions(rotary, params, 5)["model"]
    assert encoding.kind == "rotary"
    expected = rotary_tables(5, 2, base=50.0, scaling=LinearScaling(2.0))
    np.testing.assert_array_equal(encoding.values, expected)


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("decoder", {"model": ()}),
        ("masked", {"model": ("encoder",)}),
        ("classifier", {"model": ("encoder",)}),
        ("encoder_decoder", {"encoder": ("encoder",), "decoder": ("decoder",)}),
    ],
)
def test_learned_positions_are_the_first_rows_of_the_parameters(kind, parts):
    config, params = model(kind, "learned")
    encodings = runs.model_positions(config, params, 5)
    assert list(encodings) == list(parts)
    for part, path in parts.items():
        table = functools.reduce(dict.get, path, params)["positions"]["embedding"]
        assert encodings[part].kind == "learned"
        np.testing.assert_array_equal(encodings[part].values, table[:5])


def test_alibi_is_the_bias_by_the_distance_a_mask_leaves():
    bias = np.asarray(AlibiBias(alibi_slopes(3)).array(9, 9))
    config, params = model("decoder", "alibi")
    encoding = runs.model_positions(config, params, 5)["model"]
    assert encoding.kind == "alibi" and encoding.distances.tolist() == [-4, -3, -2, -1, 0]
    np.testing.assert_array_equal(encoding.values, bias[:, 4, :5])
    config, params = model("masked", "alibi")
    encoding = runs.model_positions(config, params, 5)["model"]
    assert encoding.distances.tolist() == list(range(-4, 5))
    np.testing.assert_array_equal(encoding.values, bias[:, 4])


def test_relative_positions_are_the_learned_biases_of_buckets():
    positions = RelativeConfig(num_buckets=4, max_distance=5)
    config, params = model("encoder_decoder", positions)
    encodings = runs.model_positions(config, params, 3)
    # Two buckets in each direction: 0 and 1 at or before the query, 2 and 3 after it.
    table = params["encoder"]["positions"]["table"]
    assert encodings["encoder"].distances.tolist() == [-2, -1, 0, 1, 2]
    np.testing.assert_array_equal(encodings["encoder"].values, table[np.array([1, 1, 0, 3, 3])].T)
    table = params["decoder"]["positions"]["table"]
    assert encodings["decoder"].distances.tolist() == [-2, -1, 0]
    np.testing.assert_array_equal(encodings["decoder"].values, table[np.array([2, 1, 0])].T)
    assert encodings["decoder"].kind == "relative"


def test_model_without_positions_and_impossible_lengths_are_refused():
    layers = (LayerConfig(positions="alibi"),)
    with pytest.raises(ConfigError, match="no positions to show: its config has positions='none'"):
        runs.model_positions(*model("encoder_decoder", "none", layers=layers), 3)
    with pytest.raises(ConfigError, match="no positions to show: its config has positions='none'"):
        runs.model_positions(*model("decoder", "none"), 3)
    with pytest.raises(ConfigError, match="no positions to show: each layer has its own"):
        runs.model_positions(*model("decoder", "rotary", layers=layers), 3)
    for length in (0, 12):
        with pytest.raises(ConfigError, match=f"1 .. max_len=11, got {length}"):
            runs.model_positions(*model("decoder", "sinusoidal"), length)
