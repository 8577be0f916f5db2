"""LoRA adapters in PEFT's format: read as the matrices of `[lora]`, and written from them."""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from jaxformer.config import LoraConfig
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.interop.conversion.family import Family
from jaxformer.interop.conversion.weights import Slot, tensor_slots
from jaxformer.interop.families.registry import FAMILIES, kind_of_params
from jaxformer.interop.huggingface import HuggingFaceModel
from jaxformer.interop.model_folders import ADAPTER_CONFIG
from jaxformer.interop.safetensors import read_tensors, write_tensor_file
from jaxformer.storage import as_path, drafted, make_folder, read_object, shown, write_whole

ADAPTER_WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
# Fields that change what an adapter computes, with the values that do not.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",), "use_dora": (False,), "use_qalora": (False,), "lora_bias": (False,),
    "modules_to_save": ([],), "layer_replication": ([],), "trainable_token_indices": ([], {}),
    "target_parameters": ([],), "alora_invocation_tokens": ([],), "alpha_pattern": ({},),
    # Others subtract the first product from the model's weights.
    "init_lora_weights": (True, False, "gaussian", "orthogonal", "eva"),
}  # fmt: skip
_TASKS = {"decoder": "CAUSAL_LM", "encoder_decoder": "SEQ_2_SEQ_LM", "classifier": "SEQ_CLS"}


class Adapter(NamedTuple):
    """A LoRA adapter of a model.

    Args:
        matrices: "down" and "up" at the paths of kernels, as `low_rank_params` makes them.
        lora: its rank, scale and targets.
    """

    matrices: Any
    lora: LoraConfig


def load_adapter(folder: str | os.PathLike[str], model: HuggingFaceModel) -> Adapter:
    """Reads a LoRA adapter that PEFT saved, for a model that was loaded with `load_huggingface`.

    `combine_low_rank(adapter.matrices, model.params, scale=adapter.lora.scale)` are the parameters
    of the model with its adapter.

    Args:
        folder: folder with `adapter_config.json` and `adapter_model.safetensors`.
        model: the model that the adapter was trained for.

    Raises:
        CheckpointError: a file is missing or damaged, or the adapter is not for this model.
        ConfigError: the adapter is not LoRA, or has a setting that is not supported.
    """
    folder = as_path(folder)
    config, tensors = read_object(folder / ADAPTER_CONFIG), read_tensors(folder / ADAPTER_WEIGHTS)
    _check_config(config)
    family = _family(model)
    scale = _scale(config, int(config["r"]))
    ranks = [t.shape[0] for name, t in tensors.items() if name.endswith("lora_A.weight")]
    rank = max(ranks, default=1)
    leaves = traverse_util.flatten_dict(model.params, sep="/")
    matrices: dict[str, np.ndarray] = {}
    used: set[str] = set()
    for slot, module in _modules(family, model, leaves):
        names = [f"{_PREFIX}{module}.lora_{part}.weight" for part in "AB"]
        if not tensors.keys() >= {*names}:
            continue
        used.update(names)
        down, up = (np.asarray(tensors[name].read(), np.float32) for name in names)
        shape = (len(up), down.shape[1])
        oriented = shape if slot.layout.transposed else shape[::-1]
        if up.shape[1] != len(down) or slot.shape != oriented:
            raise CheckpointError(
                f"the adapter of {module} must fit a kernel of shape {slot.shape}, got A "
                f"{down.shape} and B {up.shape}; use the model that it was trained for"
            )
        up = up * (_scale(config, len(down)) / scale)
        parts = slot.layout.parts(
            up if slot.layout.transposed else up.T,
            [(len(down), shape[-1]) for shape in slot.shapes], model.config.kv_heads,
        )  # fmt: skip
        for leaf, part in zip(slot.leaves, parts, strict=True):
            (*leading, width, output), dtype = leaves[leaf].shape, leaves[leaf].dtype
            if f"{leaf}/up" not in matrices:
                matrices[f"{leaf}/down"] = np.zeros((*leading, width, rank), dtype)
                matrices[f"{leaf}/up"] = np.zeros((*leading, rank, output), dtype)
            matrices[f"{leaf}/down"][slot.at][:, : len(down)] = down.T
            matrices[f"{leaf}/up"][slot.at][: len(down)] = part
    if unknown := sorted(tensors.keys() - used):
        raise CheckpointError(
            f"{folder / ADAPTER_WEIGHTS} must have lora_A and lora_B of layers of this "
            f"{family.model_type} model alone, got {shown(unknown[0])}; use the model that it was "
            "trained for"
        )
    targets = tuple(sorted({path.rpartition("/")[0] for path in matrices}))
    arrays = {path: jnp.asarray(array) for path, array in matrices.items()}
    lora = LoraConfig(rank=rank, alpha=scale * rank, targets=targets)
    return Adapter(traverse_util.unflatten_dict(arrays, sep="/"), lora)


def save_adapter(
    folder: str | os.PathLike[str], model: HuggingFaceModel, adapter: Adapter, *, base: str
) -> None:
    """Saves LoRA matrices as an adapter that PEFT loads.

    Args:
        folder: folder to write to; created if missing.
        model: the model of the matrices, from `load_huggingface`; its parameters may be shapes.
        adapter: matrices as `low_rank_params` makes them, and their config.
        base: path or id of the model's folder, for `base_model_name_or_path`.

    Raises:
        ConfigError: a matrix is not of a layer that the model's family has.
        OSError: a file cannot be written.
    """
    folder, family, lora = as_path(folder), _family(model), adapter.lora
    leaves = traverse_util.flatten_dict(model.params, sep="/")
    matrices = traverse_util.flatten_dict(adapter.matrices, sep="/")
    tensors: dict[str, np.ndarray] = {}
    ranks: dict[str, int] = {}
    written: set[str] = set()
    fan_in_fan_out = False
    for slot, module in _modules(family, model, leaves):
        adapted = [leaf for leaf in slot.leaves if f"{leaf}/down" in matrices]
        if not adapted:
            continue
        written.update(adapted)
        fan_in_fan_out |= not slot.layout.transposed  # as in the Conv1D of transformers
        down, up = _joined(slot, matrices, model.config.kv_heads)
        if len(down) != lora.rank:  # PEFT divides alpha by the module's rank
            ranks[module], up = len(down), up * (len(down) / lora.rank)
        for part, array in (("A", down), ("B", up)):
            tensors[f"{_PREFIX}{module}.lora_{part}.weight"] = array
    if lost := sorted({path.rpartition("/")[0] for path in matrices} - written):
        raise ConfigError(
            f"matrices must be of layers of {family.model_type}, got {lost[0]}; use the model that "
            "they were trained for"
        )
    modules = sorted({name.removeprefix(_PREFIX).rpartition(".lora_")[0] for name in tensors})
    kind = kind_of_params(model.config, model.params)
    values = {
        "peft_type": "LORA",
        "base_model_name_or_path": base,
        "task_type": _TASKS.get(kind),
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "target_modules": modules,
        "rank_pattern": {re.escape(module): rank for module, rank in ranks.items()},
        "fan_in_fan_out": fan_in_fan_out,
        "bias": "none",
        "inference_mode": True,
    }
    make_folder(folder)
    with drafted(folder, last=ADAPTER_CONFIG) as draft:
        write_tensor_file(draft / ADAPTER_WEIGHTS, tensors, {"format": "pt"})
        write_whole(draft / ADAPTER_CONFIG, json.dumps(values, indent=2) + "\n")


def _joined(
    slot: Slot, matrices: Mapping[str, jax.Array], num_groups: int
) -> tuple[np.ndarray, np.ndarray]:
    """A `[R, in]` and B `[out, R]` of a tensor; of several kernels, their ranks add up."""
    adapted = [leaf for leaf in slot.leaves if f"{leaf}/down" in matrices]
    downs = [np.asarray(matrices[f"{leaf}/down"][slot.at]) for leaf in adapted]
    rank, parts = downs[0].shape[-1], []
    for leaf, shape in zip(slot.leaves, slot.shapes, strict=True):
        part = np.zeros((rank * len(adapted), shape[-1]), downs[0].dtype)
        if leaf in adapted:
            row = rank * adapted.index(leaf)
            part[row : row + rank] = matrices[f"{leaf}/up"][slot.at]
        parts.append(part)
    up = slot.layout.join(parts, num_groups)
    return np.concatenate(downs, axis=-1).T, up if slot.layout.transposed else up.T


def _modules(
    family: Family, model: HuggingFaceModel, leaves: Mapping[str, Any]
) -> Iterator[tuple[Slot, str]]:
    """Kernels of linear layers, with the names of their modules."""
    is_base = kind_of_params(model.config, model.params) == "pooled"
    for group in tensor_slots(family, model.config, leaves):
        for slot in group:
            if not slot.leaves[0].endswith("kernel") or not slot.name.endswith(".weight"):
                continue
            module = slot.name.removesuffix(".weight")
            yield slot, module.removeprefix(family.prefix) if is_base else module


def _family(model: HuggingFaceModel) -> Family:
    if model.model_type is None:
        raise ConfigError(
            "an adapter needs a model of load_huggingface, got one without a model_type; set "
            "model._replace(model_type=...)"
        )
    return FAMILIES[model.model_type]


def _check_config(config: Mapping[str, Any]) -> None:
    """Raises ConfigError for adapters that `LowRankKernel` cannot represent."""
    for name, accepted in _NEUTRAL.items():
        value = config.get(name)
        if value is not None and value not in accepted:
            raise ConfigError(
                f"{name} of {ADAPTER_CONFIG} is not supported, got {shown(value)}; merge the "
                "adapter with PEFT's merge_and_unload, and save the model"
            )


def _scale(config: Mapping[str, Any], rank: int) -> float:
    """Scale of the product of a module of this rank."""
    return float(config["lora_alpha"]) / (math.sqrt(rank) if config.get("use_rslora") else rank)
