"""Safetensors files: read strictly without loading them, and written tensor by tensor."""

from jaxformer.interop.safetensors.files import LazyTensor, Tensor
from jaxformer.interop.safetensors.folders import open_tensors, require_no_weights, write_tensors
from jaxformer.interop.safetensors.params_files import load_params, save_params
from jaxformer.interop.safetensors.placed_arrays import PlacedArray

__all__ = [
    "LazyTensor",
    "PlacedArray",
    "Tensor",
    "load_params",
    "open_tensors",
    "require_no_weights",
    "save_params",
    "write_tensors",
]
