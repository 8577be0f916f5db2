"""Every family computes what transformers computes, and is written as transformers writes it.

The golden files are those of experiments/interop/golden.py. What is slow here is compared live by
the parity tests, too, with other weights.
"""

import jax
import numpy as np
import pytest

from jaxformer.interop import FAMILIES, load_huggingface, save_huggingface
from jaxformer.interop.safetensors import open_tensors
from tests.interop import ours
from tests.interop.golden import FOLDER, read_golden
from tests.interop.tables import QUICK, VARIANTS

TOLERANCE = 1e-5  # of float32, where numbers are about 1, and up to 5
DECODED = ("gpt2", "gemma3_text")  # learned positions, and windows in some layers
# Rows of tables of positions that no token has.
UNUSED_ROWS = {
    "model.encoder.embed_positions.weight": 2,
    "model.decoder.embed_positions.weight": 2,
    "roberta.embeddings.position_embeddings.weight": 2,
}


def slow_unless(quick, names):
    """Names as parameters, slow but for the quick ones: each compiles a model of its own."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture(scope="module", params=VARIANTS)
def case(request, tmp_path_factory):
    """A variant, its golden file, and the model that was loaded from its checkpoint."""
    golden, folder = read_golden(request.param), tmp_path_factory.mktemp("golden")
    golden.write(folder)
    loaded = load_huggingface(folder)
    return VARIANTS[request.param], golden, loaded


@pytest.mark.essential
@pytest.mark.parametrize("case", slow_unless(QUICK, VARIANTS), indirect=True)
def test_variant_computes_what_transformers_does(case):
    variant, golden, loaded = case
    outputs = ours.run(loaded, variant.kind, golden.arrays)
    for name in outputs.keys() & golden.arrays.keys():
        np.testing.assert_allclose(
            outputs[name], golden.arrays[name], rtol=0, atol=TOLERANCE, err_msg=name
        )


def test_variant_is_written_as_it_was_read(case, tmp_path):
    variant, golden, loaded = case
    written = save_huggingface(tmp_path, loaded)
    assert written == variant.model_type
    again = load_huggingface(tmp_path)
    assert again.config == loaded.config
    jax.tree.map(np.testing.assert_array_equal, again.params, loaded.params)
    written, names = open_tensors(tmp_path), variant.used(golden.shapes)
    assert set(written) == set(names)
    prefix = FAMILIES[variant.model_type].prefix if variant.kind == "pooled" else ""
    unused = {} if variant.model_type == "pegasus" else UNUSED_ROWS
    for newer, name in names.items():
        expected = golden.tensor(name)
        expected[: unused.get(prefix + newer, 0)] = 0
        np.testing.assert_array_equal(written[newer].read(), expected, strict=True)


@pytest.mark.parametrize(
    "name", slow_unless(DECODED, [n for n in VARIANTS if VARIANTS[n].kind == "decoder"])
)
def test_decoder_continues_as_transformers_does(name, tmp_path):
    golden = read_golden(name)
    golden.write(tmp_path)
    prompt, expected = golden.arrays["tokens"][0, :9], golden.arrays["greedy"]
    tokens = ours.continue_greedily(load_huggingface(tmp_path), prompt, len(expected))
    np.testing.assert_array_equal(tokens, expected)


def test_golden_files_are_those_of_the_variants():
    assert {path.stem for path in FOLDER.iterdir()} == set(VARIANTS)
