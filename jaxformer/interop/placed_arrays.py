"""Arrays that are filled part by part in host memory, and then put where they belong."""

from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from jaxformer.interop.copying import aligned_empty, fill

__all__ = ["PlacedArray"]

Bounds = tuple[tuple[int, int], ...]


class PlacedArray:
    """An array of host memory for a device, or of a shard for each device that it is split over.

    What is split is filled shard by shard, so that the whole never lies beside its shards; a device
    of a CPU takes the memory as it is.

    Args:
        shape: of the array.
        dtype: of the array.
        place: as `jax.device_put` takes it; the default device when None.

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
        if self._is_split:  # devices that have the same part share its memory
            indices = place.addressable_devices_indices_map(shape).values()
            parts = {_bounds(index or (), shape) for index in indices}
        self._buffers = {
            bounds: aligned_empty(tuple(stop - start for start, stop in bounds), dtype)
            for bounds in parts
        }

    def fill(self, at: tuple[int, ...], part: np.ndarray) -> None:
        """Copies a part into the array, cast to its dtype; parts of one array from any thread.

        Args:
            at: index of the part in the leading axes.
            part: of the shape of the other axes.
        """
        for bounds, buffer in self._buffers.items():
            leading = tuple(zip(at, bounds, strict=False))
            if all(start <= index < stop for index, (start, stop) in leading):
                own = buffer[tuple(index - start for index, (start, _) in leading)]
                fill(own, part[tuple(slice(*each) for each in bounds[len(at) :])])

    def put(self) -> jax.Array:
        """Puts the array, filled, where it belongs; called once."""
        if not self._is_split:
            (whole,) = self._buffers.values()
            return jax.device_put(whole, self._place)
        return jax.make_array_from_callback(
            self._shape, self._place, lambda index: self._buffers[_bounds(index or (), self._shape)]
        )


def _bounds(index: tuple[slice, ...], shape: tuple[int, ...]) -> Bounds:
    """Where a part begins and ends on each axis; an axis without a slice is whole."""
    slices = (*index, *[slice(None)] * (len(shape) - len(index)))
    ranges = (one.indices(size) for one, size in zip(slices, shape, strict=True))
    return tuple((start, stop) for start, stop, _ in ranges)
