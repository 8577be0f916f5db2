"""Layouts: how a tensor of a checkpoint stores parameters of a model.

Several parameters are concatenated along their last axis, the outputs. Kernels are `[in, out]`
here; torch's `nn.Linear` stores `[out, in]`.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from einops import rearrange

from jaxformer.config import ModelConfig

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Layout of one tensor."""

    # Paths of its parameters, in order. `{stack}` in a path is the group of stacked layers that a
    # layer belongs to, `{layer}` its number.
    leaves: tuple[str, ...]
    transposed: bool = False  # it is `[out, in]`
    # Parameters are interleaved by groups of heads, not concatenated: the queries of a key/value
    # head, its key, its value, then those of the next.
    by_group: bool = False
    alternating: bool = False  # outputs of its parameters alternate
    skipped_rows: int = 0  # unused rows at its start; they are written as zeros
    leading: bool = False  # it has a leading axis of size 1
    when: Callable[[ModelConfig], bool] | None = None  # whether a model has this tensor

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Shape of the tensor for parameters of these shapes."""
        *leading, _ = shapes[0]
        joined = (*leading, sum(shape[-1] for shape in shapes))
        if self.transposed:
            joined = joined[::-1]
        joined = (joined[0] + self.skipped_rows, *joined[1:])
        return (1, *joined) if self.leading else joined

    def parts(
        self, tensor: np.ndarray, shapes: Sequence[Shape], num_groups: int
    ) -> list[np.ndarray]:
        """Splits a tensor into parameters of these shapes (views if possible)."""
        tensor = tensor[0] if self.leading else tensor
        tensor = tensor[self.skipped_rows :]
        tensor = tensor.T if self.transposed else tensor
        ends = np.cumsum([shape[-1] for shape in shapes])
        if self.by_group or self.alternating:
            num_groups = shapes[0][-1] if self.alternating else num_groups
            groups = rearrange(tensor, "... (k group) -> ... k group", k=num_groups)
            parts = np.split(groups, ends[:-1] // num_groups, axis=-1)
            return [rearrange(part, "... k group -> ... (k group)") for part in parts]
        return np.split(tensor, ends[:-1], axis=-1)

    def join(self, parts: Sequence[np.ndarray], num_groups: int) -> np.ndarray:
        """The tensor of parameters."""
        if self.by_group or self.alternating:
            num_groups = parts[0].shape[-1] if self.alternating else num_groups
            groups = [rearrange(part, "... (k g) -> ... k g", k=num_groups) for part in parts]
            tensor = rearrange(np.concatenate(groups, axis=-1), "... k group -> ... (k group)")
        else:
            tensor = np.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]
        tensor = tensor.T if self.transposed else tensor
        if self.skipped_rows:
            fill = [(self.skipped_rows, 0), *[(0, 0)] * (tensor.ndim - 1)]
            tensor = np.pad(tensor, fill)
        return tensor[None] if self.leading else tensor


def same(leaf: str, **rules: Any) -> Layout:
    """A vector, a table, or a kernel `[in, out]`; rules are arguments of `Layout`."""
    return Layout((leaf,), **rules)


def linear(leaf: str, **rules: Any) -> Layout:
    """A kernel `[out, in]`, as in torch's `nn.Linear`; rules are arguments of `Layout`."""
    return Layout((leaf,), transposed=True, **rules)


def norm(name: str, path: str, **rules: Any) -> dict[str, Layout]:
    """Scale and bias of a norm."""
    return {
        f"{name}.{vector}": same(f"{path}/{leaf}", **rules)
        for vector, leaf in (("weight", "scale"), ("bias", "bias"))
    }


def dense(name: str, *paths: str, transposed: bool = True, **rules: Any) -> dict[str, Layout]:
    """Kernel and bias of torch's `nn.Linear` with one or several projections."""
    # Paths such as "feed_forward/up_kernel"; for "pooler/", "pooler/kernel".
    kernels, biases = (
        tuple(f"{path}{'_' if path and path[-1] != '/' else ''}{end}" for path in paths)
        for end in ("kernel", "bias")
    )
    return {
        f"{name}.weight": Layout(kernels, transposed=transposed, **rules),
        f"{name}.bias": Layout(biases, **rules),
    }


def block(
    layer: str, stack: str, *, norms: str = "", attention: str = "", feed_forward: str = "",
    path: str = "attention", by_group: bool = False, **rules: Any,
) -> dict[str, Layout]:  # fmt: skip
    """Tensors of the modules of a layer, by the names of its modules.

    Args:
        layer: prefix of the names.
        stack: path of the layer's parameters.
        norms: those of attention and of the feed-forward layer.
        attention: module, then query, key, value and output; or one of the first three, and output.
        feed_forward: gate, up and down; or up and down.
        path: "attention" or "cross_attention".
        by_group: as in `Layout`, for one tensor of query, key and value.
        rules: of `dense` and `norm`.
    """
    table: dict[str, Layout] = {}
    for module, sublayer in zip(norms.split(), (path, "feed_forward"), strict=False):
        table |= norm(layer + module, f"{stack}/{sublayer}_norm", **rules)
    module, *projections = attention.split() or [""]
    parts = ("query", "key", "value", "output")
    query, key, value, output = (f"{stack}/{path}/{part}" for part in parts)
    fused = [(query, key, value), (output,)]
    paths = fused if len(projections) == 2 else [(query,), (key,), (value,), (output,)]
    for name, leaves in zip(projections, paths, strict=False):
        grouped = by_group and len(leaves) > 1
        table |= dense(f"{layer}{module}.{name}", *leaves, by_group=grouped, **rules)
    names = feed_forward.split()
    for name, part in zip(names, ("gate", "up", "down")[-len(names) :], strict=False):
        table |= dense(layer + name, f"{stack}/feed_forward/{part}", **rules)
    return table
