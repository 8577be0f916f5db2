"""Layouts: how a tensor of a checkpoint stores parameters of a model.

Several parameters are concatenated along their last axis, the outputs. Kernels are `[in, out]`
here; torch's `nn.Linear` stores `[out, in]`.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

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
    # Several parameters are interleaved, not concatenated: by "heads", the queries of a key/value
    # head, its key, its value, then those of the next; or their single "outputs" alternate.
    interleaved: Literal["heads", "outputs"] | None = None
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

    def _num_groups(self, shapes: Sequence[Shape], kv_heads: int) -> int:
        """Number of groups, of which each has a part of every parameter."""
        if len(shapes) == 1 or self.interleaved is None:
            return 1
        return kv_heads if self.interleaved == "heads" else shapes[0][-1]

    def parts(self, tensor: np.ndarray, shapes: Sequence[Shape], kv_heads: int) -> list[np.ndarray]:
        """Splits a tensor into parameters of these shapes (views if possible)."""
        tensor = tensor[0] if self.leading else tensor
        tensor = tensor[self.skipped_rows :]
        tensor = tensor.T if self.transposed else tensor
        count = self._num_groups(shapes, kv_heads)
        groups = rearrange(tensor, "... (k group) -> ... k group", k=count)
        ends = np.cumsum([shape[-1] // count for shape in shapes])
        parts = np.split(groups, ends[:-1], axis=-1)
        return [rearrange(part, "... k group -> ... (k group)") for part in parts]

    def join(self, parts: Sequence[np.ndarray], kv_heads: int) -> np.ndarray:
        """The tensor of parameters."""
        count = self._num_groups([part.shape for part in parts], kv_heads)
        groups = [rearrange(part, "... (k group) -> ... k group", k=count) for part in parts]
        tensor = np.concatenate(groups, axis=-1) if len(groups) > 1 else groups[0]
        tensor = rearrange(tensor, "... k group -> ... (k group)")
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
    path: str = "attention", **rules: Any,
) -> dict[str, Layout]:  # fmt: skip
    """Tensors of the modules of a layer, by the names of its modules.

    Args:
        layer: prefix of the names.
        stack: path of the layer's parameters.
        norms: those of attention and of the feed-forward layer.
        attention: module, then query, key, value and output; or one of the first three, and output.
        feed_forward: gate, up and down; or up and down.
        path: "attention" or "cross_attention".
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
        table |= dense(f"{layer}{module}.{name}", *leaves, **rules)
    names = feed_forward.split()
    for name, part in zip(names, ("gate", "up", "down")[-len(names) :], strict=False):
        table |= dense(layer + name, f"{stack}/feed_forward/{part}", **rules)
    return table
