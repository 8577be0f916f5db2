"""Masks of the Splash kernel for windows and other rules that are known at trace time."""

import math
from typing import Any

import jax
import numpy as np

from jaxformer.functional.masks.base import And
from jaxformer.functional.masks.tiles import Tile


def splash_mask(
    shape: tuple[int, int], real: tuple[int, int], window: tuple[int | None, int | None],
    offset: int, rules: Any,
) -> Any:  # fmt: skip
    """Splash's mask of padded lengths; `rules` is the structure of rules without arrays."""
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    # The builder reads every block several times: at T = 32,768 that took 19 s with LocalMask.
    class Window(splash.LocalMask):
        """Window that compares positions only in blocks at its edges."""

        def __getitem__(self, block: tuple[slice, slice]) -> np.ndarray:
            queries, keys = (range(*part.indices(n)) for part, n in zip(block, shape, strict=True))
            left, right = (math.inf if side is None else side for side in window)
            # Distances of a key from a query, to the right, lie between these two.
            least = keys[0] - (queries[-1] + offset)
            most = keys[-1] - (queries[0] + offset)
            if -left <= least and most <= right:
                return np.ones((len(queries), len(keys)), bool)
            if most < -left or right < least:
                return np.zeros((len(queries), len(keys)), bool)
            return super().__getitem__(block)

    class Rules(splash.Mask):
        """Rules other than windows, whose blocks are stored."""

        rule = And(jax.tree.unflatten(rules, []))
        shape = property(lambda _: shape)

        def __getitem__(self, block: tuple[slice, slice]) -> np.ndarray:
            parts = [range(*part.indices(n)) for part, n in zip(block, shape, strict=True)]
            allowed = np.zeros([len(part) for part in parts], bool)
            # Padding is not shown to a user's function.
            queries, keys = (
                part[: max(0, size - part.start)] for part, size in zip(parts, real, strict=True)
            )
            if all(self.rule.visible_part(queries, keys)):
                tile = Tile((queries.start, len(queries)), (keys.start, len(keys)))
                allowed[: len(queries), : len(keys)] = self.rule.allows(tile)[0]
            return allowed

    windowed = window != (None, None)
    mask: splash.Mask
    mask = Window(shape, window, offset) if windowed else splash.FullMask(shape)
    if Rules.rule.rules:
        mask = mask & Rules() if windowed else Rules()
    return mask
