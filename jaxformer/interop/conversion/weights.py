"""Conversion between the tensors of a checkpoint and the parameters of a model."""

import concurrent.futures
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import traverse_util

from jaxformer.config import ModelConfig
from jaxformer.config.checks import suggestion
from jaxformer.errors import CheckpointError
from jaxformer.interop.conversion.family import Family
from jaxformer.interop.conversion.layouts import Layout, Shape
from jaxformer.interop.safetensors import Tensor
from jaxformer.modules.stacked_layers import GROUPS
from jaxformer.storage import some

# Tensors that a model may not have though its file has them: constants that old versions saved,
# computed positions, heads of pre-training, a table that both halves of a model have themselves.
_UNUSED = re.compile(
    r".*\.(position_ids|rotary_emb\.inv_freq|(attn|attention)\.(masked_)?bias|version)"
    r"|.*\.(embed_positions\.weights?|EncDecAttention\.relative_attention_bias\.weight)"
    r"|(.*\.)?pooler\.dense\..*|cls\.seq_relationship\..*|discriminator_predictions\..*"
    r"|model\.shared\.weight"
)
_MAX_THREADS = min(os.cpu_count() or 1, 8)
_TILE = 64  # rows of the source at a time; they fit in the CPU cache


class Slot(NamedTuple):
    """A tensor, and the parameters in it: their paths, the layer and expert, and their shapes."""

    name: str
    layout: Layout
    leaves: tuple[str, ...]
    at: tuple[int, ...]
    shapes: tuple[Shape, ...]

    @property
    def shape(self) -> Shape:
        """Shape of the tensor."""
        return self.layout.shape(self.shapes)


def read_params(
    family: Family, config: ModelConfig, shapes: Any, tensors: Mapping[str, Tensor],
    shardings: Any = None,
) -> Any:  # fmt: skip
    """Checks names and shapes of all tensors, then reads the parameters one by one."""
    leaves: dict[str, Any] = traverse_util.flatten_dict(shapes, sep="/")
    places = {} if shardings is None else traverse_util.flatten_dict(shardings, sep="/")
    groups = tensor_slots(family, config, leaves)
    names = _names_in_file(family, tensors)
    _check(family, [slot for group in groups for slot in group], tensors, names)
    params: dict[str, jax.Array] = {}
    for group in groups:
        arrays = {
            leaf: np.empty(leaves[leaf].shape, leaves[leaf].dtype) for leaf in group[0].leaves
        }

        def read(slot: Slot, arrays: dict[str, np.ndarray] = arrays) -> None:
            array = tensors[names(slot.name)].read()
            parts = slot.layout.parts(array, slot.shapes, config.kv_heads)
            for leaf, part in zip(slot.leaves, parts, strict=True):
                _copy(arrays[leaf][slot.at], part)

        # NumPy releases the GIL while it copies.
        with concurrent.futures.ThreadPoolExecutor(_MAX_THREADS) as pool:
            list(pool.map(read, group))
        for leaf in list(arrays):
            params[leaf] = _on_devices(arrays.pop(leaf), places.get(leaf))
    return traverse_util.unflatten_dict(params, sep="/")


def _copy(target: np.ndarray, source: np.ndarray) -> None:
    """Copies an array into another of the same shape, cast to its dtype."""
    # Transposed matrices are copied tile by tile, which is five times as fast in NumPy (64 MB in
    # float32: 2.1 GB/s instead of 0.45).
    if source.ndim == 2 and source.strides[0] < source.strides[1]:
        for start in range(0, source.shape[1], _TILE):
            target[:, start : start + _TILE] = source[:, start : start + _TILE]
    else:
        target[...] = source


def _on_devices(array: np.ndarray, place: Any) -> jax.Array:
    """An array on the default device, on that of `place`, or sharded over several."""
    if not isinstance(place, jax.sharding.Sharding):
        return jax.device_put(array, place)
    # Each process puts the shards of its own devices.
    return jax.make_array_from_callback(array.shape, place, lambda index: array[index])


def tensors_of_params(
    family: Family, config: ModelConfig, params: Any, dtype: np.dtype[Any]
) -> dict[str, Tensor]:
    """Tensors of a checkpoint by name, each computed from the parameters when it is written."""
    leaves: dict[str, Any] = traverse_util.flatten_dict(params, sep="/")

    def make(slot: Slot) -> Tensor:
        # As in transformers, whatever the dtype of the others.
        is_wide = slot.leaves[0].endswith("selection_bias")
        stored = np.dtype(np.float32) if is_wide else dtype

        def read() -> np.ndarray:
            parts = [np.asarray(leaves[leaf][slot.at], stored) for leaf in slot.leaves]
            return slot.layout.join(parts, config.kv_heads)

        return Tensor(slot.shape, stored, read)

    slots = [slot for group in tensor_slots(family, config, leaves) for slot in group]
    return {slot.name: make(slot) for slot in slots}


def tensor_slots(
    family: Family, config: ModelConfig, leaves: Mapping[str, Any]
) -> list[list[Slot]]:
    """Tensors of a model, grouped by the parameters that they fill."""
    groups: dict[tuple[str, ...], list[Slot]] = {}
    placed: set[str] = set()
    for name, layout in family.layouts:
        for slot in _slots(name, layout, config, leaves):
            groups.setdefault(slot.leaves, []).append(slot)
            placed.update(slot.leaves)
    if unknown := leaves.keys() - placed:
        raise CheckpointError(
            f"{family.model_type} has no tensors for the parameters {some(sorted(unknown))}; "
            "choose another model_type"
        )
    return list(groups.values())


def _slots(
    name: str, layout: Layout, config: ModelConfig, leaves: Mapping[str, Any]
) -> Iterator[Slot]:
    """Tensors of one entry of a family's table."""
    stack = config.encoder if layout.leaves[0].startswith("encoder/") else config
    first, applies = len(stack.first_layers), layout.when or (lambda model: True)
    groups = {name for name in GROUPS if applies(config.of_group(name))}
    for layer in range(stack.num_layers if "{layer}" in name else 1):
        group, index = ("first_layers", layer) if layer < first else ("layers", layer - first)
        if group not in groups:
            continue
        paths = tuple(p.format(stack=f"stack/{group}", layer=layer) for p in layout.leaves)
        if not leaves.keys() >= {*paths}:
            continue
        shapes = [leaves[path].shape for path in paths]
        at = (index,) if "{stack}" in layout.leaves[0] else ()  # else not stacked
        for expert in range(shapes[0][1]) if "{expert}" in name else (None,):
            inner = at if expert is None else (*at, expert)
            yield Slot(
                name.format(layer=layer, expert=expert), layout, paths, inner,
                tuple(shape[len(inner) :] for shape in shapes),
            )  # fmt: skip


def _names_in_file(family: Family, stored: Collection[str]) -> Callable[[str], str]:
    """Function from the names in the tables to those in a checkpoint."""
    # Files of a base model may lack the prefix.
    prefix = "" if any(name.startswith(family.prefix) for name in stored) else family.prefix
    # A tied table that is stored once may have the name of a copy.
    copies = {
        name: copy
        for copy, name in family.copies.items()
        if copy in stored and name not in stored and copy not in family.tensors
    }

    def name_in_file(name: str) -> str:
        name = copies.get(name, name).removeprefix(prefix)
        older = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        older = older.replace("LayerNorm.bias", "LayerNorm.beta")
        return older if name not in stored and older in stored else name

    return name_in_file


def _check(
    family: Family, slots: list[Slot], tensors: Mapping[str, Tensor], names: Callable[[str], str]
) -> None:
    """Checks names, shapes and dtypes of all tensors, and that copies are equal."""
    expected = {names(slot.name): slot.shape for slot in slots}
    stored, problems = set(tensors), []
    copies = {names(copy): names(name) for copy, name in family.copies.items()}
    unused = re.compile(f"{_UNUSED.pattern}|{family.unused}")
    surplus = {
        name for name in stored - expected.keys() - copies.keys() if not unused.fullmatch(name)
    }
    if missing := sorted(expected.keys() - stored):
        missing[0] += suggestion(missing[0], surplus)
        problems.append(f"it lacks {some(missing)}")
    if surplus:
        problems.append(f"it has {some(sorted(surplus))}, which this model does not have")
    wrong = [
        f"{name} is {tensors[name].shape} instead of {shape}"
        for name, shape in expected.items()
        if name in stored and tensors[name].shape != shape
    ]
    if wrong:
        problems.append(some(wrong))
    for copy in sorted((copies.keys() & stored) - expected.keys()):
        name = copies[copy]
        if name not in stored or not np.array_equal(tensors[copy].read(), tensors[name].read()):
            problems.append(f"{copy} differs from {name}, to which config.json ties it")
    if problems:
        raise CheckpointError(
            f"the weights do not match the {family.model_type} model of config.json: "
            f"{'; '.join(problems)}; use files from the same source"
        )
