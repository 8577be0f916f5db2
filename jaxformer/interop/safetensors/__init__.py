"""Safetensors files: read strictly without loading them, and written tensor by tensor."""

from jaxformer.interop.safetensors.params_files import load_params, save_params
from jaxformer.interop.safetensors.placed_arrays import PlacedArray
from jaxformer.interop.safetensors.reading import TensorFiles, open_tensors
from jaxformer.interop.safetensors.writing import (
    LazyTensor,
    require_no_weights,
    write_tensor_file,
    write_tensors,
)

__all__ = [
    "LazyTensor",
    "PlacedArray",
    "TensorFiles",
    "load_params",
    "open_tensors",
    "require_no_weights",
    "save_params",
    "write_tensor_file",
    "write_tensors",
]
