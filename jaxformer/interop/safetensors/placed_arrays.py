"""Arrays that are filled part by part in host memory, then put on devices."""

from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from jaxformer.interop.safetensors.copying import aligned_empty, fill

__all__ = ["PlacedArray"]

Bounds = tuple[tuple[int, int], ...]


class PlacedArray:
    """An array in host memory that will be put on one device, or sharded over several.

    A sharded array is filled shard by shard, so that host memory never holds it twice. CPU devices
    use the memory without a copy.

    Args:
        shape: shape of the array.
        dtype: dtype of the array.
        place: placement, as in `jax.device_put`; None for the default device.

    Example:
        >>> array = PlacedArray((2, 3), np.float32)
        >>> array.fill((0,), np.zeros(3))
        >>> array.fill((1,), np.ones(3))
        >>> array.put().tolist()
        [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    """

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike, place: Any = None) -> None:
        self._shape, self._place = shape, place
        self._is_split = isinstance(place, jax.sharding.Sharding) and len(place.device_set) > 1
        parts = {_bounds((), shape)}
        if self._is_split:  # devices with the same part share its memory
            indices = place.addressable_devices_indices_map(shape).values()
            parts = {_bounds(index or (), shape) for index in indices}
        self._buffers = {
            bounds: aligned_empty(tuple(stop - start for start, stop in bounds), dtype)
            for bounds in parts
        }

    def fill(self, at: tuple[int, ...], part: np.ndarray) -> None:
        """Copies a part into the array, cast to its dtype; threads may fill different parts.

        Args:
            at: index of the part in the leading axes.
            part: part with the remaining axes.
        """
        for bounds, buffer in self._buffers.items():
            leading = tuple(zip(at, bounds, strict=False))
            if all(start <= index < stop for index, (start, stop) in leading):
                own = buffer[tuple(index - start for index, (start, _) in leading)]
                fill(own, part[tuple(slice(*each) for each in bounds[len(at) :])])

    def put(self) -> jax.Array:
        """Puts the filled array on its devices; call it once."""
        if not self._is_split:
            (whole,) = self._buffers.values()
            return jax.device_put(whole, self._place)
        return jax.make_array_from_callback(
            self._shape, self._place, lambda index: self._buffers[_bounds(index or (), self._shape)]
        )


def _bounds(index: tuple[slice, ...], shape: tuple[int, ...]) -> Bounds:
    """Start and stop of a part on each axis; missing slices mean whole axes."""
    slices = (*index, *[slice(None)] * (len(shape) - len(index)))
    ranges = (one.indices(size) for one, size in zip(slices, shape, strict=True))
    return tuple((start, stop) for start, stop, _ in ranges)
