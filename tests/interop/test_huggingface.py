"""Folders that are loaded, that are refused, and that are saved."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxformer.config import (
    ExpertsConfig,
    LayerConfig,
    ModelConfig,
    RotaryConfig,
    SinusoidalConfig,
)
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.interop import FAMILIES, HuggingFaceModel, load_huggingface, save_huggingface
from jaxformer.interop.safetensors import Tensor
from jaxformer.models import Decoder, SequenceClassifier
from tests.interop.golden import read_golden


@pytest.fixture(scope="module")
def gpt2():
    return read_golden("gpt2")


@pytest.fixture(scope="module")
def loaded(gpt2, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt2")
    gpt2.write(folder)
    return load_huggingface(folder)


def assert_equal(params, expected):
    jax.tree.map(np.testing.assert_array_equal, params, expected)


def test_all_that_is_wrong_with_the_tensors_is_listed_before_any_is_read(
    gpt2, tmp_path, monkeypatch
):
    def unreadable(*values):
        return Tensor(*values)._replace(read=None)

    monkeypatch.setattr("jaxformer.interop.safetensors.Tensor", unreadable)
    arrays = gpt2.tensors
    arrays["transformer.h.1.attn.c_att.bias"] = arrays.pop("transformer.h.1.attn.c_attn.bias")
    del arrays["transformer.ln_f.bias"]
    arrays["transformer.wpe.weight"] = arrays["transformer.wpe.weight"][:-1]
    for name in ("score.weight", "transformer.h.0.attn.rotary_emb.inv_freq2"):
        arrays[name] = np.ones((2, 3), np.float32)
    arrays["transformer.h.0.attn.rotary_emb.inv_freq"] = np.ones(3, np.float32)  # a known constant
    gpt2.write(tmp_path, arrays)
    with pytest.raises(CheckpointError) as error:
        load_huggingface(tmp_path)
    message = str(error.value)
    assert message.startswith("the weights do not match the gpt2 model of config.json: it lacks ")
    for words in (
        "lacks transformer.h.1.attn.c_attn.bias; did you mean 'transformer.h.1.attn.c_att.bias'?, "
        "transformer.ln_f.bias",
        "it has score.weight, transformer.h.0.attn.rotary_emb.inv_freq2, "
        "transformer.h.1.attn.c_att.bias, which this model does not have",
        "transformer.wpe.weight is (82, 36) instead of (83, 36)",
    ):
        assert words in message
    assert message.endswith("; use files from the same source")


def test_copy_of_a_tied_table_must_be_one(gpt2, tmp_path):
    arrays = gpt2.tensors
    arrays["lm_head.weight"] = arrays["transformer.wte.weight"].copy()
    gpt2.write(tmp_path / "equal", arrays)
    assert load_huggingface(tmp_path / "equal").config.tied_embeddings
    arrays["lm_head.weight"][0, 0] += 1
    gpt2.write(tmp_path / "other", arrays)
    words = "lm_head.weight differs from transformer.wte.weight, to which config.json ties it"
    with pytest.raises(CheckpointError, match=re.escape(words)):
        load_huggingface(tmp_path / "other")


@pytest.mark.parametrize(
    ("stored", "options", "dtype", "param_dtype"),
    [
        ("float16", {}, "float32", "float32"),
        ("bfloat16", {}, "bfloat16", "bfloat16"),
        ("bfloat16", {"dtype": "float32"}, "float32", "bfloat16"),
        ("bfloat16", {"param_dtype": "float32"}, "float32", "float32"),
        ("float32", {"dtype": "bfloat16"}, "bfloat16", "float32"),
    ],
)
def test_dtypes_are_those_of_the_files_where_not_given(
    stored, options, dtype, param_dtype, gpt2, tmp_path
):
    arrays = {name: array.astype(jnp.dtype(stored)) for name, array in gpt2.tensors.items()}
    gpt2.write(tmp_path, arrays)
    config, params, tokenizer, *_ = load_huggingface(tmp_path, **options)
    assert (config.dtype, config.param_dtype, tokenizer) == (dtype, param_dtype, None)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(params)} == {param_dtype}
    expected = arrays["transformer.wte.weight"].astype(jnp.dtype(param_dtype))
    np.testing.assert_array_equal(params["embedding"]["embedding"], expected)


def test_selection_biases_stay_in_float32_beside_bfloat16(tmp_path):
    read_golden("glm4_moe").write(tmp_path / "float32")
    loaded = load_huggingface(tmp_path / "float32")
    save_huggingface(tmp_path / "bfloat16", loaded, dtype="bfloat16")
    again = load_huggingface(tmp_path / "bfloat16")
    assert again.config.param_dtype == "bfloat16"
    layers, expected = (
        model.params["stack"]["layers"]["feed_forward"] for model in (again, loaded)
    )
    assert layers["router_kernel"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(layers["selection_bias"], expected["selection_bias"], strict=True)


def test_parameters_are_placed_as_shardings_say(gpt2, loaded, tmp_path):
    gpt2.write(tmp_path)
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
    split, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((None, "x"), ()))

    def shardings(shapes):
        return jax.tree.map(lambda leaf: split if leaf.ndim > 1 else whole, shapes)

    params = load_huggingface(tmp_path, shardings=shardings).params
    assert_equal(params, loaded.params)
    assert params["embedding"]["embedding"].sharding == split
    assert params["final_norm"]["scale"].sharding == whole


@pytest.mark.essential
def test_model_is_saved_in_shards_of_another_dtype(loaded, tmp_path):
    save_huggingface(tmp_path, loaded, dtype="bfloat16", max_shard_bytes=20_000)
    assert len(list(tmp_path.glob("model-0*.safetensors"))) > 3
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    again = load_huggingface(tmp_path).params
    assert_equal(again, jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), loaded.params))


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
    ],
)  # fmt: skip
def test_weights_that_are_there_are_never_replaced(loaded, tmp_path, name):
    (tmp_path / name).write_text("theirs")
    with pytest.raises(ConfigError, match=f"must not contain weights, got {name}; remove them"):
        save_huggingface(tmp_path, HuggingFaceModel(loaded.config, loaded.params))
    assert (tmp_path / name).read_text() == "theirs" and len(list(tmp_path.iterdir())) == 1


SMALL = ModelConfig(
    vocab_size=11, max_len=8, num_layers=2, d_model=4, num_heads=2, positions="rotary",
    norm="rms_norm", use_bias=False, activation="swiglu",
)  # fmt: skip


MIXTURE = ExpertsConfig(num_experts=3, num_experts_per_token=2)


def shapes(config):
    return jax.eval_shape(Decoder(config).init_params, jax.random.key(0))


@pytest.mark.parametrize(
    ("changes", "model_type", "words"),
    [
        (
            {}, "gpt2",
            "it could with model.norm = 'layer_norm' (here 'rms_norm'), model.activation = ",
        ),
        ({"tied_embeddings": False}, "gpt", "must be one of gpt2, opt, "),
        (
            {"attention_sinks": True}, "llama",
            "model type llama cannot represent this model: it could with "
            "model.attention_sinks = False (here True)"
        ),
        (
            {"layers": (LayerConfig(), LayerConfig(local_window_size=3))}, "llama",
            "it could with model.local_window_size = None (here 4)",
        ),
        (
            {"positions": RotaryConfig(layout="interleaved")}, "llama",
            "it could with model.positions.layout = 'half' (here 'interleaved')",
        ),
        (
            {"positions": SinusoidalConfig(), "logit_softcap": 3.0}, "llama",
            "model.logit_softcap = None (here 3.0), model.positions = 'rotary' (here 'sinusoidal')",
        ),
        ({"positions": SinusoidalConfig()}, None, "; nor can gpt2, "),
        (
            {"experts": MIXTURE, "first_layers": (LayerConfig(experts=False),)}, "mixtral",
            "model.experts = ExpertsConfig(num_experts=3, ",
        ),
    ],
)  # fmt: skip
def test_what_a_family_cannot_say_is_not_written(changes, model_type, words, tmp_path):
    config = dataclasses.replace(SMALL, **changes)
    with pytest.raises(ConfigError, match=re.escape(words)):
        save_huggingface(
            tmp_path / "new", HuggingFaceModel(config, shapes(config)), model_type=model_type
        )
    assert not (tmp_path / "new").exists()


def test_family_that_is_preferred_is_written_where_it_can(tmp_path):
    params = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), shapes(SMALL))
    for preferred, written in (("mistral", "mistral"), ("gpt2", "llama"), (None, "llama")):
        folder = tmp_path / str(preferred)
        written_type = save_huggingface(
            folder, HuggingFaceModel(SMALL, params, model_type=preferred)
        )
        assert written_type == load_huggingface(folder).model_type == written
    with pytest.raises(ConfigError, match="model_type must be one of .*, got 'lama'"):
        save_huggingface(tmp_path / "no", HuggingFaceModel(SMALL, params), model_type="lama")


def test_classes_are_loaded_and_saved_by_name(tmp_path):
    config = dataclasses.replace(SMALL, num_classes=3, pooling="last", output_bias=False)
    params = SequenceClassifier(config).init_params(jax.random.key(0))
    model = HuggingFaceModel(
        config, params, class_names=("bad", "good", "so-so"),
        problem_type="multi_label_classification",
    )  # fmt: skip
    save_huggingface(tmp_path / "first", model)
    save_huggingface(tmp_path / "again", load_huggingface(tmp_path / "first"))
    again = load_huggingface(tmp_path / "again")
    assert (again.class_names, again.problem_type) == (model.class_names, model.problem_type)
    unsaid = model._replace(problem_type=None)
    save_huggingface(tmp_path / "unsaid", unsaid)  # transformers decides by the labels
    save_huggingface(tmp_path / "unsaid again", load_huggingface(tmp_path / "unsaid"))
    values = json.loads((tmp_path / "unsaid again" / "config.json").read_text())
    assert "problem_type" not in values


@pytest.mark.parametrize("model_type", ["gemma2", "gemma3_text", "olmo3"])
def test_model_without_windows_names_a_width_that_transformers_needs(model_type):
    config = ModelConfig(max_len=16, num_layers=2, d_model=12, num_heads=2, positions="rotary")
    fields = FAMILIES[model_type].write(config)
    assert fields["layer_types"] == ["full_attention"] * 2 and fields["sliding_window"] == 4096
