"""Arrays of many kinds, and safetensors files of them."""

import ml_dtypes
import numpy as np
from safetensors.numpy import save

from jaxformer.interop.safetensors import Tensor

ARRAYS = {
    "scalar": np.array(2.5),
    "empty": np.zeros((3, 0, 5), np.float32),
    "bfloat16": np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16),
    "float16": np.arange(7).astype(np.float16) / 2,
    "float32": np.arange(10, dtype=np.float32).reshape(2, 5),
    "float64": np.arange(3) / 3,
    "int64": np.array([-(2**62), 2**62]),
    "int8": np.array([[-128], [127]], np.int8),
    "uint64": np.array([2**64 - 1], np.uint64),
    "bool": np.array([True, False, True]),
    "complex64": np.array([1 + 2j], np.complex64),
    'ಕನ್ನಡ "and"\n😀': np.zeros((), np.int16),
}


def valid(arrays=ARRAYS, metadata=None):
    """Bytes of a file of arrays, as the package makes them."""
    return save(arrays, metadata or {"format": "pt"})


def lazy(arrays):
    """Arrays as they are written."""
    return {
        name: Tensor(array.shape, array.dtype, lambda array=array: array)
        for name, array in arrays.items()
    }
