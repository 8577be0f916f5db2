"""`config.json` of published models: each is read as what the model is, or refused with a cause.

The files were put together from public copies and from memory; their fields and values count, not
their form. The numbers of parameters are those that model cards and the hub say.
"""

import dataclasses
import json
import math
import pathlib
import re

import jax
import numpy as np
import pytest

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.interop import FAMILIES, load_huggingface
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.families.registry import MODEL_CLASSES, family_of
from jaxformer.models.init_shapes import init_shapes
from tests.interop.golden import read_golden

FOLDER = pathlib.Path("tests/interop")
CONFIGS = json.loads((FOLDER / "published_configs.json").read_text())
PARAMETERS = json.loads((FOLDER / "published_parameters.json").read_text())

CLASSES = "architectures must be one of "
REFUSED = {
    "allenai/OLMo-7B-0424-hf": "clip_qkv=8.0 changes what the model computes",
    "tiiuae/falcon-rw-1b": "alibi=True changes what the model computes",
    "facebook/bart-large-mnli": f"{CLASSES}BartForConditionalGeneration, ",
    "google/electra-small-discriminator": "embedding_size=128 changes what the model computes",
    "google/electra-base-generator": "embedding_size=768 changes what the model computes",
}
READ = [name for name in CONFIGS if name not in REFUSED]

# Names of numbers in the files; the first that is there counts.
NAMES = {
    "num_heads": ("decoder_attention_heads", "n_head", "n_heads", "num_attention_heads",
                  "num_heads"),
    "max_len": ("n_positions", "max_position_embeddings"),
}  # fmt: skip
SIZES = {  # which the number of parameters tells, where a card says it
    "vocab_size": ("decoder_vocab_size", "vocab_size"),
    "num_layers": ("decoder_layers", "num_decoder_layers", "n_layers", "num_hidden_layers"),
    "d_model": ("d_model", "dim", "hidden_size"),
    "d_ff": ("decoder_ffn_dim", "hidden_dim", "ffn_hidden_size", "intermediate_size", "d_ff"),
}
WITHOUT_MAX_LEN = {  # it is 2048
    "decapoda-research/llama-7b-hf", "tiiuae/falcon-7b", "tiiuae/falcon-7b-instruct",
    "tiiuae/falcon-40b",
}  # fmt: skip
TABLES_WITHOUT_TWO_ROWS = {  # positions that no token has: tables here are two rows shorter
    "opt": 1, "roberta": 1, "xlm-roberta": 1, "camembert": 1, "bart": 2, "mbart": 2,
}  # fmt: skip
BEHIND_PADDING = {"roberta", "xlm-roberta", "camembert"}
LEARNED = {"gpt2", "opt", "bert", "electra", "distilbert", *TABLES_WITHOUT_TWO_ROWS}
SINES = {"marian", "m2m_100", "pegasus"}
RELATIVE = {"t5", "mt5"}  # and UMT5, layer by layer


def tensors_of(name):
    """Names of tensors that tell what a config does not."""
    untied = re.search("flan|v1_1|mt5|madlad", name) is not None
    return ("lm_head.weight",) if untied else ()


def read(name):
    """Kind and config of a published model."""
    values = CONFIGS[name]
    # SciBERT's file names no class, and has the heads of both tasks.
    family, kind = family_of(values, "config.json", ["cls.predictions.transform.dense.weight"])
    fields = ConfigFields(values, "config.json", tensors_of(name))
    return kind, ModelConfig(**family.read(fields, kind))


def first(values, names):
    return next((values[name] for name in names if values.get(name) is not None), None)


def test_published_configs_are_of_every_family():
    assert len(CONFIGS) >= 60
    assert {values["model_type"] for values in CONFIGS.values()} == set(FAMILIES)
    assert REFUSED.keys() | PARAMETERS.keys() <= CONFIGS.keys()


@pytest.mark.parametrize("name", READ)
def test_published_config_is_read(name):
    values, (_, config) = CONFIGS[name], read(name)
    fields = dataclasses.asdict(config)
    family = values["model_type"]
    names_of = NAMES if name in PARAMETERS else NAMES | SIZES
    expected = {key: first(values, names) for key, names in names_of.items()}
    if family in BEHIND_PADDING:
        expected["max_len"] -= 2
    if family in RELATIVE | {"umt5"}:
        expected["max_len"] = 512  # the length of pre-training, which the files need not say
    if name in WITHOUT_MAX_LEN:
        expected["max_len"] = 2048
    assert {key: fields[key] for key in expected} == expected
    kind = config.positions if isinstance(config.positions, str) else config.positions.kind
    groups = {"learned": LEARNED, "sinusoidal": SINES, "relative": RELATIVE, "none": {"umt5"}}
    assert kind == next((name for name, types in groups.items() if family in types), "rotary")


@pytest.mark.essential
@pytest.mark.parametrize("name", PARAMETERS)
def test_published_model_has_the_number_of_parameters_of_its_card(name):
    kind, config = read(name)
    family = CONFIGS[name]["model_type"]
    biased = kind == "masked" or (kind == "decoder" and config.output_bias)
    config = dataclasses.replace(config, layer_execution="scan", output_bias=biased)
    shapes = init_shapes(MODEL_CLASSES[kind](config))
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    count += TABLES_WITHOUT_TWO_ROWS.get(family, 0) * 2 * config.d_model
    if family == "marian":  # tables of sines, which are computed here
        count += 2 * config.max_len * config.d_model
    assert count == PARAMETERS[name]


@pytest.mark.parametrize("name", REFUSED)
def test_published_config_is_refused_with_its_cause(name):
    with pytest.raises(ConfigError, match=re.escape(REFUSED[name])):
        read(name)


@pytest.mark.parametrize(
    ("name", "windows"),
    [
        ("mistralai/Mistral-7B-v0.1", [4096] * 32),
        ("mistralai/Mistral-7B-Instruct-v0.2", [None] * 32),
        ("Qwen/Qwen2.5-7B-Instruct", [None] * 28),
        ("microsoft/Phi-3-mini-4k-instruct", [2047] * 32),
        ("google/gemma-2-2b", [4096, None] * 13),
        ("google/gemma-3-1b-it", ([512] * 5 + [None]) * 4 + [512] * 2),
        ("google/gemma-3-270m", ([512] * 5 + [None]) * 3),
        ("allenai/Olmo-3-1025-7B", ([4096] * 3 + [None]) * 8),
        ("bigcode/starcoder2-3b", [4096] * 30),
        ("answerdotai/ModernBERT-base", [None, 65, 65] * 7 + [None]),
    ],
)
def test_published_windows_are_of_the_layers_that_have_them(name, windows):
    _, config = read(name)
    size = config.local_window_size
    sizes = [layer.local_window_size or size for layer in config.layer_overrides]
    assert [None if size is None else size + 1 for size in sizes] == windows


@pytest.mark.parametrize(
    ("name", "base", "width", "scaling"),
    [
        ("EleutherAI/pythia-70m", 1e4, 16, None),
        ("EleutherAI/gpt-neox-20b", 1e4, 24, None),
        ("huggyllama/llama-7b", 1e4, None, None),
        ("lmsys/vicuna-7b-v1.5-16k", 1e4, None, dict(kind="linear", factor=4.0)),
        ("meta-llama/Meta-Llama-3-8B", 5e5, None, None),
        ("meta-llama/Llama-3.2-1B", 5e5, None, dict(kind="llama3", factor=32.0)),
        ("microsoft/phi-4", 2.5e5, None, None),
        ("microsoft/Phi-3.5-mini-instruct", 1e4, None, dict(kind="longrope", factor=32.0)),
        ("microsoft/Phi-4-mini-instruct", 1e4, 96, dict(kind="longrope", factor=32.0)),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", 1e6, None,
         dict(kind="yarn", factor=4.0, original_max_len=32_768)),
        ("arcee-ai/AFM-4.5B", 1e4, None, dict(kind="yarn", factor=20.0, original_max_len=4096)),
        ("tiiuae/falcon-11B", 500_042.0, None, None),
        ("EleutherAI/gpt-j-6b", 1e4, 64, None),
        ("zai-org/GLM-4.5-Air", 1e6, 64, None),
        ("microsoft/phi-1_5", 1e4, 32, None),
        ("microsoft/phi-2", 1e4, 32, None),
    ],
)  # fmt: skip
def test_published_rotary_positions_are_those_of_the_file(name, base, width, scaling):
    positions = read(name)[1].positions
    assert (positions.base, positions.rotary_dim) == (base, width)
    actual = None if positions.scaling is None else dataclasses.asdict(positions.scaling)
    assert actual is None if scaling is None else actual | scaling == actual


def test_published_layers_without_positions_are_each_fourth():
    layers = read("HuggingFaceTB/SmolLM3-3B")[1].layer_overrides
    kinds = [layer.positions is not None and layer.positions.kind for layer in layers]
    assert kinds == [False, False, False, "none"] * 9


def test_base_model_of_bart_is_read_without_the_bias_that_its_file_lacks(tmp_path):
    golden = read_golden("bart")
    head = {"final_logits_bias", "lm_head.weight"}
    arrays = {
        name.removeprefix("model."): golden.tensor(name) for name in golden.shapes.keys() - head
    }
    golden.write(tmp_path / "base", arrays, architectures=["BartModel"])
    golden.write(tmp_path)
    base, whole = (load_huggingface(folder) for folder in (tmp_path / "base", tmp_path))
    assert dataclasses.replace(base.config, output_bias=True) == whole.config
    del whole.params["embedding"]["output_bias"]
    jax.tree.map(np.testing.assert_array_equal, base.params, whole.params)


def test_discriminator_of_electra_is_read_without_its_head(tmp_path):
    golden = read_golden("electra-pooled")
    golden.write(tmp_path / "base")
    arrays = {f"electra.{name}": array for name, array in golden.tensors.items()}
    arrays["discriminator_predictions.dense.weight"] = np.ones((36, 36), np.float32)
    golden.write(tmp_path, arrays, architectures=["ElectraForPreTraining"])
    base, whole = (load_huggingface(folder) for folder in (tmp_path / "base", tmp_path))
    assert base.config == whole.config
    jax.tree.map(np.testing.assert_array_equal, base.params, whole.params)
