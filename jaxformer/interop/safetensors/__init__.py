"""Safetensors files: read strictly without loading them, and written tensor by tensor."""

from jaxformer.interop.safetensors.files import (
    LazyTensor,
    Tensor,
    read_tensors,
    write_tensor_file,
)
from jaxformer.interop.safetensors.folders import open_tensors, require_no_weights, write_tensors

__all__ = [
    "LazyTensor",
    "Tensor",
    "open_tensors",
    "read_tensors",
    "require_no_weights",
    "write_tensor_file",
    "write_tensors",
]
