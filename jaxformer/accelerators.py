"""Accelerators, with the figures of their makers."""

import dataclasses
from typing import Any, Literal

from jaxformer.config.checks import suggestion
from jaxformer.errors import ConfigError

_GB, _TB, _TFLOPS = 10**9, 10**12, 10**12
_MIB, _GIB = 2**20, 2**30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One device, a GPU or a TPU chip, as its maker describes it.

    Args:
        name: short name, such as "H100".
        platform: "cuda" or "tpu".
        bfloat16: FLOP/s of dense bfloat16 matrix products, without sparsity.
        float32: FLOP/s of float32 matrix products at JAX's default precision: TF32 on an NVIDIA
            GPU, one pass of bfloat16 on a TPU.
        memory: bytes of device memory.
        memory_bandwidth: bytes per second.
        interconnect: bytes per second, in one direction, between the chips of a TPU slice; 0 for
            GPUs, whose communication is not planned.
    """

    name: str
    platform: Literal["cuda", "tpu"]
    bfloat16: float
    float32: float
    memory: int
    memory_bandwidth: float
    interconnect: float = 0.0

    @property
    def usable_memory(self) -> int:
        """Bytes that JAX can allocate: by default three quarters of a GPU, all of a TPU."""
        return self.memory * 3 // 4 if self.platform == "cuda" else self.memory


def _gpu(name: str, *, bfloat16: float, tf32: float, memory: int, bandwidth: float) -> Accelerator:
    """An NVIDIA GPU."""
    return Accelerator(
        name=name, platform="cuda", bfloat16=bfloat16 * _TFLOPS, float32=tf32 * _TFLOPS,
        # From nvidia-smi: what is sold as 80 GB is nearly 80 GiB.
        memory=memory * _MIB, memory_bandwidth=bandwidth * _TB,
    )  # fmt: skip


def _tpu(name: str, *, bfloat16: float, memory: int, bandwidth: float, links: float) -> Accelerator:
    """A TPU chip; `links` is the sum of its links in one direction, in Gbit/s, as published."""
    return Accelerator(
        name=name, platform="tpu", bfloat16=bfloat16 * _TFLOPS, float32=bfloat16 * _TFLOPS,
        memory=memory, memory_bandwidth=bandwidth * _GB, interconnect=links / 8 * _GB,
    )  # fmt: skip


# Half the published FLOP/s, which assume sparsity.
_HOPPER = {"bfloat16": 989.5, "tf32": 494.5}

ACCELERATORS = {
    accelerator.name: accelerator
    for accelerator in (
        # NVIDIA A100 Tensor Core GPU datasheet (2022), A100 80GB SXM.
        _gpu("A100", bfloat16=312, tf32=156, memory=81_920, bandwidth=2.039),
        # NVIDIA H100 Tensor Core GPU datasheet (2023), H100 SXM.
        _gpu("H100", memory=81_559, bandwidth=3.35, **_HOPPER),
        # NVIDIA H200 Tensor Core GPU datasheet (2024), H200 SXM.
        _gpu("H200", memory=143_771, bandwidth=4.8, **_HOPPER),
        # NVIDIA HGX B200 (Blackwell architecture brief and DGX B200 datasheet, 2024), dense;
        # bandwidth 64 TB/s for eight, of which the driver shows 7.7 TB/s each.
        _gpu("B200", bfloat16=2250, tf32=1100, memory=183_359, bandwidth=7.7),
        # Google Cloud TPU documentation, page "TPU v4": 275 TFLOPS, 32 GiB, 1200 GB/s, six links
        # of 50 GB/s (Jouppi et al., "TPU v4", 2023, table 4).
        _tpu("v4", bfloat16=275, memory=32 * _GIB, bandwidth=1200, links=2400),
        # The same, page "TPU v5e": 197 TFLOPS, 16 GB (of which the compiler gives out 15.75 GiB),
        # 819 GB/s, 1600 Gbit/s.
        _tpu("v5e", bfloat16=197, memory=16 * _GIB, bandwidth=819, links=1600),
        # The same, page "TPU v5p": 459 TFLOPS, 95 GB, 2765 GB/s, 4800 Gbit/s.
        _tpu("v5p", bfloat16=459, memory=95 * _GIB, bandwidth=2765, links=4800),
        # The same, page "TPU v6e": 918 TFLOPS, 32 GB, 1638 GB/s, 800 GB/s in both directions.
        _tpu("v6e", bfloat16=918, memory=32 * _GIB, bandwidth=1638, links=3200),
    )
}
"""All accelerators, by name."""

_KINDS = {  # names of ACCELERATORS, by `jax.Device.device_kind`
    "NVIDIA A100-SXM4-80GB": "A100", "NVIDIA H100 80GB HBM3": "H100", "NVIDIA H200": "H200",
    "NVIDIA B200": "B200", "TPU v4": "v4", "TPU v5 lite": "v5e", "TPU v5e": "v5e", "TPU v5": "v5p",
    "TPU v5p": "v5p", "TPU v6 lite": "v6e", "TPU v6e": "v6e",
}  # fmt: skip


def find_accelerator(name: str) -> Accelerator:
    """Accelerator of a name, ignoring case.

    Raises:
        ConfigError: there is no such accelerator.

    Example:
        >>> find_accelerator("h100").memory
        85520809984
    """
    by_lower = {key.lower(): accelerator for key, accelerator in ACCELERATORS.items()}
    if name.lower() not in by_lower:
        raise ConfigError(
            f"accelerator must be one of {', '.join(ACCELERATORS)}, got {name!r}"
            f"{suggestion(name, ACCELERATORS)}"
        )
    return by_lower[name.lower()]


def accelerator_of(device: Any) -> Accelerator | None:
    """Accelerator of a `jax.Device`; None if its kind is not listed, as for CPUs."""
    name = _KINDS.get(device.device_kind)
    return None if name is None else ACCELERATORS[name]
