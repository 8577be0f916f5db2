"""Suggestions for an unknown key, in a file or as a flag."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["suggested_keys"]

# Names in other programs and papers, and the keys here.
_CALLED_HERE = {
    "lr": "learning_rate",
    "wd": "weight_decay",
    "optim": "optimizer.name",
    "warmup": "warmup_steps",
    "epochs": "training.steps",
    "num_epochs": "training.steps",
    "max_steps": "training.steps",
    "max_iters": "training.steps",
    "iterations": "training.steps",
    "num_steps": "training.steps",
    "batch": "batch_size",
    "bs": "batch_size",
    "grad_accum": "accumulate_steps",
    "gradient_accumulation_steps": "accumulate_steps",
    "dim": "d_model",
    "hidden_size": "d_model",
    "embed_dim": "d_model",
    "n_embd": "d_model",
    "width": "d_model",
    "ffn_dim": "d_ff",
    "depth": "num_layers",
    "n_layer": "num_layers",
    "n_layers": "num_layers",
    "n_head": "num_heads",
    "n_heads": "num_heads",
    "context": "max_len",
    "context_length": "max_len",
    "block_size": "max_len",
    "seq_len": "max_len",
    "max_length": "max_len",
    "precision": "model.dtype",
    "tokenizer": "tokenizer.kind",
    "data": "data.paths",
    "dataset": "data.paths",
    "input": "data.paths",
    "file": "data.paths",
    "prompt": "prompts",
    "output": "out",
    "output_dir": "out",
    "save_dir": "out",
    "resume_from": "init_from",
    "checkpoint": "init_from",
    "pretrained": "init_from",
    "finetune": "init_from",
    "gpus": "training.devices",
}

# Sizes of a batch: a config sets one of them, depending on its data.
_ALTERNATIVES = {"batch_size": "batch_tokens", "batch_tokens": "batch_size"}

_MOST = 3


def suggested_keys(wrong: str, values: Mapping[str, Any]) -> Sequence[str]:
    """Keys of a config that an unknown key may mean, most likely first; empty if none is similar.

    A key is found by its name in other programs, its last part, a word in it, or its spelling. Keys
    that the config sets come first.

    Args:
        wrong: the unknown key, such as "lr" or "model.num_head".
        values: the config's values by dotted key.

    Example:
        >>> suggested_keys("lr", {"seed": 0, "optimizer.learning_rate": 0.1})
        ['optimizer.learning_rate']
    """
    word = wrong.rpartition(".")[2]
    word = _CALLED_HERE.get(word, word)
    leaves = {key: key.rpartition(".")[2] for key in values}
    found = [key for key, leaf in leaves.items() if word in (key, leaf)]
    if not found:
        near, words = difflib.get_close_matches(wrong, leaves, n=1, cutoff=0.8), word.split("_")
        found = near or [key for key in leaves if set(words) <= set(leaves[key].split("_"))]
    if not found:
        alike = difflib.get_close_matches(word, leaves.values(), n=1, cutoff=0.7)
        found = [key for key in leaves if leaves[key] in alike]
    found = [_alternative(key, values) for key in found]
    return sorted(dict.fromkeys(found), key=lambda key: values[key] is None)[:_MOST]


def _alternative(key: str, values: Mapping[str, Any]) -> str:
    """The alternative to a key that is not set, if the config sets it; else the key."""
    table, dot, leaf = key.rpartition(".")
    other = f"{table}{dot}{_ALTERNATIVES.get(leaf)}"
    return other if values[key] is None and values.get(other) is not None else key
