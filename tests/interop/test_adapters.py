"""LoRA adapters of PEFT: read beside a model, written for it, and refused by name."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxformer import runs
from jaxformer.config import LoraConfig
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.interop import Adapter, load_adapter, load_huggingface, save_adapter
from jaxformer.runs.weights.huggingface import HuggingFaceWeights
from jaxformer.training import combine_low_rank, low_rank_params, merge_low_rank
from tests.runs import pretrained_folders

CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "bias": "none", "modules_to_save": None}
Q, DOWN = "model.layers.{}.self_attn.q_proj", "model.layers.{}.mlp.down_proj"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root, loaded = tmp_path_factory.mktemp("models"), {}
    for name in ("llama", "gpt2"):
        getattr(pretrained_folders, name)(root / name)
        loaded[name] = load_huggingface(root / name)
    return root, loaded


def write(folder, tensors, **changes):
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | changes))
    named = {f"base_model.model.{name}.weight": array for name, array in tensors.items()}
    save_file(named, folder / "adapter_model.safetensors")
    return folder


def pair(seed, module, rows, columns, rank=2):
    rng = np.random.default_rng(seed)
    return {
        f"{module}.lora_A": rng.standard_normal((rank, columns)).astype(np.float32),
        f"{module}.lora_B": rng.standard_normal((rows, rank)).astype(np.float32),
    }


def product(tensors, module):
    """B A in float64."""
    return np.float64(tensors[f"{module}.lora_B"]) @ np.float64(tensors[f"{module}.lora_A"])


def merged(model, adapter):
    combined = combine_low_rank(adapter.matrices, model.params, scale=adapter.lora.scale)
    return merge_low_rank(combined)["stack"]["layers"]


def test_products_are_added_to_the_kernels_of_their_layers(models, tmp_path):
    model = models[1]["llama"]
    tensors = pair(0, Q.format(1), 12, 12, rank=1)
    for layer in range(2):
        tensors |= pair(layer + 1, DOWN.format(layer), 12, 20)
    changes = {"rank_pattern": {"q_proj": 1}, "alpha_pattern": {}}
    adapter = load_adapter(write(tmp_path / "adapter", tensors, **changes), model)
    paths = ("stack/layers/attention/query_kernel", "stack/layers/feed_forward/down_kernel")
    assert adapter.lora == LoraConfig(rank=2, alpha=6.0, targets=paths)
    layers, before = merged(model, adapter), model.params["stack"]["layers"]
    for layer in range(2):
        scaled = 6 / 2 * product(tensors, DOWN.format(layer)).T
        old, new = (tree["feed_forward"]["down_kernel"][layer] for tree in (before, layers))
        np.testing.assert_allclose(new, old + scaled, rtol=0, atol=1e-5)
    old, new = (tree["attention"]["query_kernel"] for tree in (before, layers))
    np.testing.assert_array_equal(new[0], old[0])
    np.testing.assert_allclose(new[1], old[1] + 6 * product(tensors, Q.format(1)).T, atol=1e-5)


def test_adapter_of_a_fused_tensor_is_split(models, tmp_path):
    model, module = models[1]["gpt2"], "transformer.h.1.attn.c_attn"
    tensors = pair(3, module, 36, 12)
    folder = write(tmp_path / "adapter", tensors, use_rslora=True, fan_in_fan_out=True)
    layers = merged(model, load_adapter(folder, model))
    scaled = np.split(6 / 2**0.5 * product(tensors, module).T, 3, axis=-1)
    for name, expected in zip(("query", "key", "value"), scaled, strict=True):
        old = model.params["stack"]["layers"]["attention"][f"{name}_kernel"]
        new = layers["attention"][f"{name}_kernel"]
        np.testing.assert_allclose(new[1], old[1] + expected, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(new[0], old[0])


def drawn(model, seed=0):
    """Matrices of all kernels of attention, and their config."""
    lora = LoraConfig(rank=2, alpha=6.0, targets=("*attention*kernel",))
    matrices = low_rank_params(
        model.params, jax.random.key(seed), rank=lora.rank, targets=lora.targets
    )
    leaves, tree = jax.tree.flatten(matrices)
    waves = [0.1 * np.cos(np.arange(leaf.size)).reshape(leaf.shape) for leaf in leaves]
    return Adapter(jax.tree.unflatten(tree, [np.float32(wave) for wave in waves]), lora)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_what_is_written_is_read_again(models, tmp_path, name):
    model, adapter = models[1][name], drawn(models[1][name])
    save_adapter(tmp_path / "adapter", model, adapter, base="base")
    expected, again = (
        merged(model, matrices) for matrices in (adapter, load_adapter(tmp_path / "adapter", model))
    )
    for part in ("query", "value", "output"):
        kernels = (tree["attention"][f"{part}_kernel"] for tree in (again, expected))
        np.testing.assert_allclose(*kernels, rtol=0, atol=1e-5)
    names = load_file(tmp_path / "adapter" / "adapter_model.safetensors").keys()
    module = {"llama": Q.format(0), "gpt2": "transformer.h.0.attn.c_attn"}[name]
    assert f"base_model.model.{module}.lora_A.weight" in names


@pytest.mark.parity
@pytest.mark.filterwarnings("default")  # those of peft
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_peft_computes_the_same(models, tmp_path, name):
    peft = pytest.importorskip("peft")
    import torch
    import transformers

    root, loaded = models
    model, tokens = loaded[name], np.array([[1, 5, 9, 4]])
    adapter = drawn(model)
    save_adapter(tmp_path / "adapter", model, adapter, base=str(root / name))
    there = transformers.AutoModelForCausalLM.from_pretrained(root / name)
    there = peft.PeftModel.from_pretrained(there, tmp_path / "adapter").eval()
    params = combine_low_rank(adapter.matrices, model.params, scale=adapter.lora.scale)
    logits = model.model.apply({"params": params}, tokens).logits
    with torch.no_grad():
        expected = there(torch.tensor(tokens)).logits.numpy()
    np.testing.assert_allclose(logits, expected, rtol=0, atol=2e-4)
    there.save_pretrained(tmp_path / "again")
    again = load_adapter(tmp_path / "again", model)
    params = combine_low_rank(again.matrices, model.params, scale=again.lora.scale)
    logits = model.model.apply({"params": params}, tokens).logits
    np.testing.assert_allclose(logits, expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize(
    ("changes", "tensors", "error", "words"),
    [
        ({"peft_type": "IA3"}, {}, ConfigError, "peft_type .* not supported, got 'IA3'"),
        ({"use_dora": True}, {}, ConfigError, "use_dora .* not supported, got True; merge"),
        ({"modules_to_save": ["lm_head"]}, {}, ConfigError, "modules_to_save"),
        ({"alpha_pattern": {"q_proj": 5}}, {}, ConfigError, "alpha_pattern .* not supported"),
        ({"init_lora_weights": "pissa"}, {}, ConfigError, "init_lora_weights"),
        ({}, pair(0, Q.format(7), 12, 12), CheckpointError, "layers.7.self_attn.q_proj.lora_A"),
        ({}, pair(0, Q.format(0), 12, 13), CheckpointError, r"fit a kernel of shape \(12, 12\)"),
    ],
)
def test_other_adapters_are_refused_by_name(models, tmp_path, changes, tensors, error, words):
    folder = write(tmp_path / "adapter", {**pair(1, Q.format(1), 12, 12), **tensors}, **changes)
    with pytest.raises(error, match=words):
        load_adapter(folder, models[1]["llama"])


def test_adapter_beside_a_model_is_not_ignored_in_silence(tmp_path):
    pretrained_folders.llama(tmp_path / "model")
    (tmp_path / "model" / "adapter_config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(ConfigError, match="got both config.json and adapter_config.json; .*ignore"):
        load_huggingface(tmp_path / "model")
    load_huggingface(tmp_path / "model", ignore=("adapter_config.json",))


def test_folder_of_an_adapter_opens_with_its_model(models, tmp_path):
    root, loaded = models
    model, text = loaded["llama"], "the cat sat"
    adapter = drawn(model)
    save_adapter(tmp_path / "adapter", model, adapter, base=str(root / "llama"))
    run = runs.open_run(tmp_path / "adapter")
    kernel = run.params["stack"]["layers"]["attention"]["value_kernel"]
    expected = merged(model, adapter)["attention"]["value_kernel"]
    np.testing.assert_allclose(kernel, expected, rtol=0, atol=1e-5)
    digests = {HuggingFaceWeights(path).digest for path in (root / "llama", tmp_path / "adapter")}
    assert len(digests) == 2
    assert run.log_likelihood([text]) != runs.open_run(root / "llama").log_likelihood([text])
    save_adapter(tmp_path / "moved", model, adapter, base=str(tmp_path / "absent"))
    with pytest.raises(CheckpointError, match="only an adapter, .*absent.* --base FOLDER"):
        runs.open_run(tmp_path / "moved")
    again = runs.open_run(tmp_path / "moved", base=root / "llama")
    assert again.log_likelihood([text]) == run.log_likelihood([text])
    with pytest.raises(ConfigError, match="base can only be set for a run"):
        runs.open_run(root / "llama", base=root)
