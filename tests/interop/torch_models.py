"""What transformers computes with a variant; it, and torch, must be installed."""

import json
import logging

import numpy as np
import pytest

from jaxformer.interop.safetensors import open_tensors, write_tensors
from tests.interop.crafted import lazy
from tests.interop.golden import tensor

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity(logging.ERROR)

LENGTHS = np.array([11, 7])
TARGETS = 9  # tokens of the decoder's input

# One way to compute it, which rounds alike everywhere.
_EAGER = dict(attn_implementation="eager", experts_implementation="eager", dtype=torch.float32)


def new_model(variant):
    """A model with the values that transformers starts from."""
    config = transformers.AutoConfig.for_model(variant.model_type, **variant.fields)
    model = getattr(transformers, variant.class_name)._from_config(config, **_EAGER)
    return model.eval()


def read_model(folder, class_name, surplus=()):
    """The model of a folder, of which every tensor is there, and used, but for the surplus."""
    model, report = getattr(transformers, class_name).from_pretrained(
        folder, output_loading_info=True, **_EAGER
    )
    unexpected = set(report["unexpected_keys"]) - set(surplus)
    assert not report["missing_keys"] and not unexpected and not report["mismatched_keys"], report
    return model.eval()


def write_variant(folder, variant, seed):
    """Writes a variant with tensors that a seed draws; returns its config, and their shapes."""
    new_model(variant).save_pretrained(folder)
    shapes = {name: tensor.shape for name, tensor in open_tensors(folder).items()}
    (folder / "model.safetensors").unlink()
    shapes = variant.tensors(shapes)
    config = variant.config(json.loads((folder / "config.json").read_text()))
    (folder / "config.json").write_text(json.dumps(config))
    arrays = {name: tensor(variant.model_type, shapes, name, seed) for name in shapes}
    write_tensors(folder, lazy(arrays))
    return config, shapes


def draw_inputs(rng, variant, config):
    """Rows of unequal lengths, padded on the right."""
    padding = np.arange(LENGTHS.max()) >= LENGTHS[:, None]
    tokens = rng.randint(3, config.vocab_size, padding.shape)
    pad = config.pad_token_id or 0
    # Some models take every padding id for padding.
    tokens[tokens == pad] = 5
    tokens[padding] = pad
    inputs = {"tokens": tokens, "lengths": LENGTHS}
    if getattr(config, "type_vocab_size", 1) > 1:
        inputs["token_types"] = rng.randint(0, config.type_vocab_size, padding.shape)
    if variant.kind == "encoder_decoder":
        vocab_size = getattr(config, "decoder_vocab_size", None) or config.vocab_size
        targets = rng.randint(3, vocab_size - 1, (len(LENGTHS), TARGETS))
        targets[:, 0] = config.decoder_start_token_id
        inputs["targets"] = targets
    return inputs


def run(model, kind, inputs):
    """Outputs of real tokens `[B, T]`, padded on the right: logits, hidden and pooled, if any."""
    mask = np.arange(inputs["tokens"].shape[1]) < inputs["lengths"][:, None]
    names = {"tokens": "input_ids", "token_types": "token_type_ids", "targets": "decoder_input_ids"}
    arguments = {
        names[name]: torch.tensor(values).long() for name, values in inputs.items() if name in names
    }
    arguments["attention_mask"] = torch.tensor(mask).long()
    with torch.no_grad():
        output = model(**arguments, output_hidden_states=True)
        base = model.base_model(**arguments)
    outputs = {}
    if kind != "pooled":
        logits = output.prediction_logits if "prediction_logits" in output else output.logits
        of_tokens = kind in ("decoder", "masked", "token_classifier")
        outputs["logits"] = logits.numpy()[mask] if of_tokens else logits.numpy()
    elif "pooler_output" in base and base.pooler_output is not None:
        outputs["pooled"] = base.pooler_output.numpy()
    if kind == "encoder_decoder":
        return outputs | {"hidden": output.decoder_hidden_states[-1].numpy()}
    return outputs | {"hidden": base.last_hidden_state.numpy()[mask]}


def continue_greedily(model, prompt, count):
    """New tokens by whole passes, and the least margin that a token was chosen by."""
    tokens, margin = torch.tensor(prompt)[None], np.inf
    with torch.no_grad():
        for _ in range(count):
            best = model(input_ids=tokens, use_cache=False).logits[:, -1].topk(2)
            margin = min(margin, float(best.values[0, 0] - best.values[0, 1]))
            tokens = torch.cat([tokens, best.indices[:, :1]], dim=1)
        cached = model.generate(
            torch.tensor(prompt)[None], do_sample=False, max_new_tokens=count, eos_token_id=None,
            pad_token_id=0,
        )  # fmt: skip
    assert torch.equal(tokens, cached)
    return tokens[0, len(prompt) :].numpy(), margin
