"""Steps on one device."""

from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from jaxformer.training.parallel.runner import Runner

__all__ = ["SingleRunner"]


class SingleRunner(Runner):
    """Runs steps on one device, without any collective.

    Args:
        device: the device; JAX's default when not given.

    Example:
        >>> runner = SingleRunner()
        >>> runner.axis_name, runner.num_devices
        (None, 1)
    """

    def __init__(self, device: jax.Device | None = None) -> None:
        device = device or jax.local_devices()[0]
        super().__init__([device], SingleDeviceSharding(device))

    def _put(self, batch: Any) -> Any:
        return jax.device_put(batch, self._devices[0])  # microseconds faster than with a sharding

    def on_one_host(self, params: Any) -> Any:
        """Returns the parameters unchanged."""
        return params
