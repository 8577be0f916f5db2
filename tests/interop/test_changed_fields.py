"""Each field of a config is changed or left out: where transformers' logits change, ours do.

For environments with torch and transformers: python -m pytest -m 'parity and not slow'
tests/interop, and with 'parity and slow' for all variants. With -s it prints the fields that are
refused here though their change changes nothing there.
"""

import json

import jax
import numpy as np
import pytest

from jaxformer.errors import CheckpointError
from jaxformer.interop import load_huggingface
from jaxformer.interop.model_folders import open_huggingface
from tests.interop import ours, torch_models
from tests.interop.tables import VARIANTS

pytestmark = pytest.mark.parity

CHANGED = 4e-6  # more than rounding in logits of up to 5
TOLERANCE = 1.2e-5
SEED = 101
# One variant of each kind of config is changed whenever this group runs.
OFTEN = ("gpt2", "gpt_neox", "llama", "gemma3_text", "olmo3", "xlm-roberta")
CASES = [pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in VARIANTS]
ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu")
# Fields that code of transformers asks for though no config class declares them.
UNDECLARED = dict.fromkeys((
    "embedding_size", "head_dim", "is_decoder", "n_embed", "partial_rotary_factor", "rope_scaling",
    "rope_theta", "sliding_window", "sliding_window_pattern",
))  # fmt: skip


def other_values(value):
    """Values to change a field to; `...` leaves it out."""
    if isinstance(value, bool):
        return [not value, ...]
    if value is None:
        return [1, 2, True, 0.5]
    if isinstance(value, int):
        return [value + 1, max(value // 2, 1), 0, ...]
    if isinstance(value, float):
        return [value * 2 + 0.1, ...]
    if value in ACTIVATIONS or value == "gelu_pytorch_tanh":
        return [name for name in ACTIVATIONS if name != value] + [...]
    if isinstance(value, str):
        return ["other", ...]
    if isinstance(value, list) and value:
        return [value[::-1], value[:1] * len(value), value[-1:] * len(value), ...]
    return [...]


def changes_of(values):
    """Tables of fields to change, one field at a time; those of nested tables, too."""
    for name, value in values.items():
        if isinstance(value, dict):
            for change in changes_of(value):
                yield {name: value | change}
        for other in other_values(value):
            yield {name: other}


def applied(values):
    """The fields of a table, and of the tables in it, without those that are left out."""
    return {
        name: applied(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if value is not ...
    }


def known_fields(config, values):
    """Fields of a file, and others that transformers knows of such a config."""
    declared = {
        name: value
        for name, value in vars(config).items()
        if isinstance(value, bool | int | float | str | None)
    }
    return UNDECLARED | declared | values


def read_there(folder, variant, inputs):
    """What transformers computes with a folder; None where it refuses it."""
    try:
        model = torch_models.read_model(folder, variant.class_name, variant.surplus)
        return torch_models.run(model, variant.kind, inputs)
    except Exception:  # transformers and torch refuse values by errors of every kind
        return None


def distance(actual, expected):
    """Largest difference of two sets of outputs; infinite where their shapes are not equal."""
    pairs = [(actual[name], expected[name]) for name in actual.keys() & expected.keys()]
    if any(array.shape != other.shape for array, other in pairs):
        return np.inf
    return max(np.abs(array - other).max() for array, other in pairs)


@pytest.fixture(autouse=True)
def drop_compiled_programs():
    """Frees what a variant has compiled: of all together Linux would not allow the memory maps."""
    yield
    jax.clear_caches()


@pytest.mark.parametrize("name", CASES)
def test_change_of_a_field_is_a_change_of_ours_or_refused(name, tmp_path):
    variant = VARIANTS[name]
    values, _ = torch_models.write_variant(tmp_path, variant, SEED)
    model = torch_models.read_model(tmp_path, variant.class_name, variant.surplus)
    inputs = torch_models.draw_inputs(np.random.RandomState(SEED), variant, model.config)
    unchanged = torch_models.run(model, variant.kind, inputs)
    config = open_huggingface(tmp_path).config
    wrong = []
    known = known_fields(model.config, values)
    if variant.kind == "decoder_classifier":
        del known["pad_token_id"]  # by which only transformers finds the last token
    for change in changes_of(known):
        (tmp_path / "config.json").write_text(json.dumps(applied(values | change)))
        theirs = read_there(tmp_path, variant, inputs)
        try:
            loaded = load_huggingface(tmp_path)
        except (CheckpointError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            if theirs is not None and distance(unchanged, theirs) <= CHANGED:
                print(f"{name}, {change}: refused, though nothing changes: {error}")
            continue
        if theirs is None:
            continue
        if loaded.config == config:  # the computation is the one that was compared
            if (theirs_by := distance(unchanged, theirs)) > CHANGED:
                wrong.append(f"{change}: only theirs changes, by {theirs_by:.1e}")
            continue
        outputs = ours.run(loaded, variant.kind, inputs)
        if (error := distance(outputs, theirs)) > TOLERANCE:
            wrong.append(f"{change}: ours differ by {error:.1e}")
    assert not wrong, "\n".join(wrong)
