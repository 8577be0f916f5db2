"""Every family computes what transformers computes, and is written as transformers writes it."""

import functools

import jax
import numpy as np
import pytest

from jaxformer.config import SamplingConfig
from jaxformer.inference import generate
from jaxformer.interop import load_huggingface, save_huggingface
from jaxformer.interop.safetensors_files import open_tensors
from tests.interop.golden import FOLDER, read_golden
from tests.interop.tables import QUICK, VARIANTS

TOLERANCE = 1e-5  # of float32, where numbers are about 1, and up to 5
# One of each way to decode: learned positions, grouped heads, windows in some layers.
DECODED = ("gpt2", "llama-yarn", "gemma3_text")
# Rows of tables of positions that no token has.
UNUSED_ROWS = {"model.decoder.embed_positions.weight": 2}


def once_unless(names):
    """All variants, of which those that are not named run once."""
    return [
        name if name in names else pytest.param(name, marks=pytest.mark.once) for name in VARIANTS
    ]


@functools.partial(
    jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0}
)
def apply(model, params, *tokens, **inputs):
    output = model.apply({"params": params}, *tokens, **inputs)
    return output.logits, output.hidden


@pytest.fixture(scope="module", params=once_unless(QUICK))
def case(request, tmp_path_factory):
    """A variant, its golden file, and the model that was loaded from its checkpoint."""
    golden, folder = read_golden(request.param), tmp_path_factory.mktemp("golden")
    golden.write(folder)
    return VARIANTS[request.param], golden, load_huggingface(folder)


def test_variant_computes_what_transformers_does(case):
    _, golden, loaded = case
    arrays = golden.arrays
    tokens, lengths = arrays["tokens"], arrays["lengths"]
    logits, hidden = apply(loaded.model, loaded.params, tokens, lengths=lengths)
    is_real = np.arange(tokens.shape[1]) < lengths[:, None]
    np.testing.assert_allclose(logits[is_real], arrays["logits"], rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(hidden[is_real], arrays["hidden"], rtol=0, atol=TOLERANCE)


def test_variant_is_written_as_it_was_read(case, tmp_path):
    variant, golden, loaded = case
    save_huggingface(tmp_path, loaded.config, loaded.params, model_type=variant.model_type)
    again = load_huggingface(tmp_path)
    assert again.config == loaded.config
    jax.tree.map(np.testing.assert_array_equal, again.params, loaded.params)
    written = open_tensors(tmp_path)
    names = {variant.full_name(name): name for name in golden.shapes if name not in variant.surplus}
    assert set(written.names) == set(names)
    for full_name, name in names.items():
        expected = golden.tensor(name)
        expected[: UNUSED_ROWS.get(full_name, 0)] = 0
        np.testing.assert_array_equal(written.read(full_name), expected, strict=True)


@pytest.mark.parametrize("name", once_unless(DECODED))
def test_variant_continues_as_transformers_does(name, tmp_path):
    golden = read_golden(name)
    golden.write(tmp_path)
    loaded = load_huggingface(tmp_path)
    expected = golden.arrays["greedy"]
    found = generate(
        loaded.model, loaded.params, [golden.arrays["prompt"]], max_new_tokens=len(expected),
        rng=jax.random.key(0), sampling=SamplingConfig(temperature=0.0),
    )  # fmt: skip
    np.testing.assert_array_equal(found[0], expected)


def test_golden_files_are_those_of_the_variants():
    assert {path.stem for path in FOLDER.iterdir()} == set(VARIANTS)
