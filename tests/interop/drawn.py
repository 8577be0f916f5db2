"""Values of tensors that are drawn from their names, so that golden files need not hold weights."""

import math
import re
import zlib

import numpy as np

_NORM = re.compile(r"(norm|ln)[^.]*\.(weight|gamma)$", re.IGNORECASE)
_TABLE = re.compile(r"embed|wte|wpe|shared|lm_head|decoder\.weight|vocab_projector")


def drawn(model_type, name, shape, seed=0):
    """Float32 values of a tensor: those of a name are the same everywhere, and none is 0 or 1.

    The stream of a `RandomState` is frozen, and so is that of `standard_normal` on it. Layers keep
    the size of what passes through them, and tables are such that logits are about 1 in size, where
    float32 rounds by 1e-7. Gemma adds 1 to the scales of its norms.
    """
    rng = np.random.RandomState(zlib.crc32(f"{seed} {name}".encode()))
    values = rng.standard_normal(shape)
    if len(shape) == 1 and _NORM.search(name):
        values = (0 if model_type.startswith("gemma") else 1) + values / 4
    elif len(shape) < 2 or name.endswith("final_logits_bias"):
        values = values / 5
    elif _TABLE.search(name):
        values = values * 0.15
    else:
        # T5 does not scale its scores, but its weights.
        scale = 0.4 if name.endswith(".q.weight") else 1.25
        values = values * scale / math.sqrt(shape[-1])
    return np.asarray(values, np.float32)
