"""Weights in MXFP4 are read as the numbers that they stand for."""

import json

import jax
import numpy as np
import pytest

from jaxformer.config import ModelConfig
from jaxformer.interop import FAMILIES, HuggingFaceModel, load_huggingface, save_huggingface
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.mxfp4 import with_dequantized
from jaxformer.interop.safetensors import open_tensors, write_tensors
from jaxformer.models import Decoder
from tests.interop.crafted import lazy

NUMBERS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
CONFIG = {
    "vocab_size": 11, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "num_local_experts": 3,
    "num_experts_per_tok": 2, "max_position_embeddings": 16,
}  # fmt: skip
SHAPES = {"gate_up_proj": (3, 128, 1, 16), "down_proj": (3, 32, 2, 16)}  # of blocks


def drawn(seed=0):
    """Blocks and scales, by name of the tensor."""
    rng = np.random.default_rng(seed)
    return {
        name: (
            rng.integers(256, size=shape, dtype=np.uint8),
            rng.integers(119, 131, size=shape[:-1], dtype=np.uint8),
        )
        for name, shape in SHAPES.items()
    }


def named(stem, pair):
    """Both tensors by their names in a file."""
    return dict(zip((f"{stem}_blocks", f"{stem}_scales"), pair, strict=True))


def kernel(blocks, scales, expert, row, column):
    """A number of a kernel `[E, in, out]`: two in each byte, the low bits first."""
    block, place = divmod(row, 32)
    bits = int(blocks[expert, column, block, place // 2]) >> 4 * (place % 2) & 15
    return (
        (-1) ** (bits >> 3) * NUMBERS[bits & 7] * 2.0 ** (int(scales[expert, column, block]) - 127)
    )


def test_blocks_and_scales_of_a_folder_are_its_kernels(tmp_path):
    family = FAMILIES["gpt_oss"]
    config = ModelConfig(**family.read(ConfigFields(CONFIG, "config.json"), "decoder"))
    params = Decoder(config).init_params(jax.random.key(0))
    save_huggingface(tmp_path / "whole", HuggingFaceModel(config, params), model_type="gpt_oss")
    arrays = {name: entry.read() for name, entry in open_tensors(tmp_path / "whole").items()}
    quantized = drawn()
    for name, pair in quantized.items():
        stem = f"model.layers.0.mlp.experts.{name}"
        del arrays[stem]
        arrays |= named(stem, pair)
    values = json.loads((tmp_path / "whole" / "config.json").read_text())
    values["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (tmp_path / "config.json").write_text(json.dumps(values))
    write_tensors(tmp_path, lazy(arrays))
    layer = load_huggingface(tmp_path).params["stack"]["layers"]["feed_forward"]
    for expert, row, column in [(0, 0, 0), (1, 31, 5), (2, 17, 63), (2, 30, 31)]:
        for part, place in (("gate", 2 * column), ("up", 2 * column + 1)):
            expected = kernel(*quantized["gate_up_proj"], expert, row, place)
            assert layer[f"{part}_kernel"][0, expert, row, column] == expected
        expected = kernel(*quantized["down_proj"], expert, row + 32, column % 32)
        assert layer["down_kernel"][0, expert, row + 32, column % 32] == expected


@pytest.mark.parity
def test_kernels_are_those_of_transformers(tmp_path):
    torch = pytest.importorskip("torch")
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    for name, pair in drawn(seed=1).items():
        (tmp_path / name).mkdir()
        write_tensors(tmp_path / name, lazy(named(name, pair)))
        (actual,) = with_dequantized(open_tensors(tmp_path / name)).values()
        expected = convert_moe_packed_tensors(*map(torch.tensor, pair))
        assert actual.shape == expected.shape
        np.testing.assert_array_equal(actual.read().astype(np.float32), expected.float().numpy())
