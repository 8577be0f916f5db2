"""Weights in MXFP4, as those of gpt-oss: blocks of 32 four-bit floats times a power of two."""

import functools
from collections.abc import Mapping

import ml_dtypes
import numpy as np
from einops import rearrange

from jaxformer.interop.safetensors import Tensor

_POSITIVE = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)
_NUMBERS = np.concatenate([_POSITIVE, -_POSITIVE])  # by their four bits
_PAIRS = np.stack([np.tile(_NUMBERS, 16), np.repeat(_NUMBERS, 16)], axis=-1)  # by byte, low first
_BLOCKS, _SCALES = "_blocks", "_scales"


def with_dequantized(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by name, with one of bfloat16 in place of each pair of blocks and scales."""
    stems = [name.removesuffix(_BLOCKS) for name in tensors if name.endswith(_BLOCKS)]
    pairs = {
        stem: _dequantized(tensors[stem + _BLOCKS], tensors[stem + _SCALES])
        for stem in stems
        if stem + _SCALES in tensors
    }
    parts = {stem + end for stem in pairs for end in (_BLOCKS, _SCALES)}
    return {name: tensor for name, tensor in tensors.items() if name not in parts} | pairs


def _dequantized(blocks: Tensor, scales: Tensor) -> Tensor:
    """Kernels of experts `[E, in, out]`, which are dequantized when they are read.

    Args:
        blocks: uint8 `[E, out, in / 32, 16]`, two numbers each.
        scales: uint8 `[E, out, in / 32]`, the exponents plus 127.
    """
    experts, outputs, *sizes = blocks.shape
    shape = (experts, 2 * int(np.prod(sizes)), outputs)
    read = functools.partial(_read, blocks, scales, shape)
    return Tensor(shape, np.dtype(ml_dtypes.bfloat16), read, blocks.path)


def _read(blocks: Tensor, scales: Tensor, shape: tuple[int, ...]) -> np.ndarray:
    kernels = np.empty(shape, ml_dtypes.bfloat16)
    exponents = scales.read().astype(np.int32) - 127
    for kernel, expert, powers in zip(kernels, blocks.read(), exponents, strict=True):
        numbers = np.ldexp(_PAIRS[expert], powers[..., None, None])
        kernel[...] = rearrange(numbers, "out block byte pair -> (block byte pair) out")
    return kernels
