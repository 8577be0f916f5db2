"""Models that transformers has just made, loaded here, and those written here, loaded there.

For environments with torch and transformers: python -m pytest -m parity tests/interop.
"""

import dataclasses
import json

import numpy as np
import pytest

from jaxformer.errors import ConfigError
from jaxformer.interop import FAMILIES, HuggingFaceModel, load_huggingface, save_huggingface
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.safetensors import open_tensors, write_tensors
from tests.interop import ours, torch_models
from tests.interop.crafted import lazy
from tests.interop.tables import VARIANTS
from tests.interop.torch_models import transformers

pytestmark = pytest.mark.parity

TOLERANCE = 1e-5
SEED = 101  # other values than those of the golden files
AUTO_CLASSES = {
    "decoder": "AutoModelForCausalLM", "encoder_decoder": "AutoModelForSeq2SeqLM",
    "masked": "AutoModelForMaskedLM", "classifier": "AutoModelForSequenceClassification",
    "decoder_classifier": "AutoModelForSequenceClassification",
    "token_classifier": "AutoModelForTokenClassification", "pooled": "AutoModel",
}  # fmt: skip


@pytest.fixture(scope="module", params=VARIANTS)
def case(request, tmp_path_factory):
    """A variant, inputs, what transformers computes, and the model that was loaded here."""
    variant, folder = VARIANTS[request.param], tmp_path_factory.mktemp("theirs")
    torch_models.write_variant(folder, variant, SEED)
    model = torch_models.read_model(folder, variant.class_name, variant.surplus)
    inputs = torch_models.draw_inputs(np.random.RandomState(SEED), variant, model.config)
    expected = torch_models.run(model, variant.kind, inputs)
    loaded = load_huggingface(folder)
    return variant, inputs, expected, loaded


def assert_close(outputs, expected):
    for name in outputs.keys() & expected.keys():
        np.testing.assert_allclose(
            outputs[name], expected[name], rtol=0, atol=TOLERANCE, err_msg=name
        )


def test_model_of_transformers_computes_the_same_here(case):
    variant, inputs, expected, loaded = case
    assert_close(ours.run(loaded, variant.kind, inputs), expected)


def test_model_that_is_written_here_computes_the_same_there(case, tmp_path):
    variant, inputs, expected, loaded = case
    # Where a model has no padding id, transformers classifies one text at a time.
    model = HuggingFaceModel(loaded.config, loaded.params)
    if variant.kind == "decoder_classifier":
        model = loaded
    save_huggingface(tmp_path, model, model_type=variant.model_type)
    # Encoders of encoder-decoders have no class that is found by itself.
    is_encoder = variant.class_name.endswith("EncoderModel")
    name = variant.class_name if is_encoder else AUTO_CLASSES[variant.kind]
    model = torch_models.read_model(tmp_path, name)
    assert_close(torch_models.run(model, variant.kind, inputs), expected)


def test_pegasus_whose_file_lacks_the_positions_has_those_of_transformers(tmp_path):
    variant = VARIANTS["pegasus"]
    torch_models.new_model(variant).save_pretrained(tmp_path)
    model = torch_models.read_model(tmp_path, variant.class_name)
    inputs = torch_models.draw_inputs(np.random.RandomState(SEED), variant, model.config)
    written = open_tensors(tmp_path).items()
    arrays = {name: entry.read() for name, entry in written if "embed_positions" not in name}
    (tmp_path / "model.safetensors").unlink()
    write_tensors(tmp_path, lazy(arrays))
    loaded = load_huggingface(tmp_path)
    assert loaded.config.positions.kind == "sinusoidal"
    expected = torch_models.run(model, variant.kind, inputs)
    assert_close(ours.run(loaded, variant.kind, inputs), expected)


@pytest.fixture(
    scope="module", params=[(f.model_type, name) for f in FAMILIES.values() for name in f.classes],
    ids=lambda names: names[1],
)  # fmt: skip
def defaults(request):
    """A family, what its model computes, and the config that transformers makes without arguments.

    Also its fields that transformers does not write where they have their default.
    """
    model_type, class_name = request.param
    assert hasattr(transformers, class_name) or "Classification" not in class_name
    # Embeddings of ELECTRA that are narrower than its layers are not supported, and dots.llm1 has
    # no default experts.
    options = {
        "electra": {"embedding_size": 256},
        "dots1": {"n_shared_experts": 2, "n_routed_experts": 8, "num_experts_per_tok": 2},
    }
    config = transformers.AutoConfig.for_model(model_type, **options.get(model_type, {}))
    names = [field.name for field in dataclasses.fields(config)]
    values = {name: getattr(config, name) for name in names} | config.to_dict()
    values = json.loads(json.dumps(values | {"architectures": [class_name]}, default=str))
    return FAMILIES[model_type], FAMILIES[model_type].classes[class_name], values


def test_missing_field_is_refused_or_what_transformers_takes(defaults):
    family, kind, values = defaults
    expected = family.read(ConfigFields(values, "config.json"), kind)
    for missing in values:
        fields = {name: value for name, value in values.items() if name != missing}
        try:
            config = family.read(ConfigFields(fields, "config.json"), kind)
        except ConfigError as error:
            assert f"must have {missing}" in str(error)
        else:
            assert config == expected, missing
