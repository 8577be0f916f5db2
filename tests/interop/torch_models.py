"""What transformers computes with a variant; it, and torch, must be installed."""

import json

import numpy as np
import torch
import transformers
from safetensors import safe_open

from jaxformer.interop.safetensors_files import LazyTensor, write_tensors

transformers.utils.logging.disable_progress_bar()

# One way to compute it, which rounds alike everywhere.
_EAGER = dict(attn_implementation="eager", experts_implementation="eager", dtype=torch.float32)


def new_model(variant):
    """A model with the values that transformers starts from."""
    config = transformers.AutoConfig.for_model(variant.model_type, **variant.fields)
    model = getattr(transformers, variant.class_name)._from_config(config, **_EAGER)
    return model.eval()


def read_model(folder, variant):
    """The model of a folder, of which every tensor is there, and used.

    Tensors that an older file has on top are what it may pass over.
    """
    model, found = getattr(transformers, variant.class_name).from_pretrained(
        folder, output_loading_info=True, **_EAGER
    )
    unexpected = set(found["unexpected_keys"]) - set(variant.surplus)
    assert not found["missing_keys"] and not unexpected and not found["mismatched_keys"], found
    return model.eval()


def write_variant(folder, variant, values):
    """Writes a variant as a file of its age has it.

    Args:
        folder: to write to.
        variant: what to write.
        values: makes a tensor of its name and shape.

    Returns:
        The content of config.json, and the shapes of the tensors.
    """
    new_model(variant).save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "np") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}
    (folder / "model.safetensors").unlink()
    shapes = variant.tensors(shapes)
    config = variant.config(json.loads((folder / "config.json").read_text()))
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {name: LazyTensor.of(values(name, shape)) for name, shape in shapes.items()}
    write_tensors(folder, tensors, metadata={"format": "pt"})
    return config, shapes


def run_decoder(model, tokens, lengths):
    """Logits and hidden states of the real tokens of padded rows."""
    mask = np.arange(tokens.shape[1]) < lengths[:, None]
    inputs = dict(input_ids=torch.tensor(tokens), attention_mask=torch.tensor(mask).long())
    with torch.no_grad():
        logits = model(**inputs, use_cache=False).logits
        hidden = model.base_model(**inputs, use_cache=False).last_hidden_state
    return {"logits": logits.numpy()[mask], "hidden": hidden.numpy()[mask]}


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
