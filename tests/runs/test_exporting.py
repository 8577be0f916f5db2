"""Export of runs as folders of Hugging Face: what no trained run is needed for."""

import dataclasses
import json

import jax
import pytest

from jaxformer import runs, text
from jaxformer.interop import SpecialTokens, save_huggingface
from tests.runs import tiny


@pytest.mark.parametrize(("start", "expected"), [(None, 256), (3, 3)])
def test_decoder_start_is_the_end_of_text_unless_the_model_has_its_own(tmp_path, start, expected):
    config = tiny.config(
        tmp_path, architecture="encoder_decoder", data={"source": "copy"},
        tokenizer={"kind": "byte"},
        model={"vocab_size": 257, "positions": "learned", "norm": "layer_norm",
               "activation": "gelu", "norm_position": "pre", "embedding_norm": True,
               "output_bias": True},
    )  # fmt: skip
    tokenizers, decoding = (text.byte_tokenizer(),) * 2, SpecialTokens(decoder_start=start)
    model = runs.Translator(config=config, tokenizers=tokenizers, decoding=decoding)
    params = jax.jit(model.initializer)(jax.random.key(0))
    model = dataclasses.replace(model, params=params)
    assert save_huggingface(tmp_path / "hf", model.to_huggingface()) == "mbart"
    settings = json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    assert settings["decoder_start_token_id"] == expected
