"""Parameters of a small mixture of experts, and its float64 reference."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.functional import ExpertsParams, LowRankKernel

D, F, E = 5, 7, 11


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def low_rank(params, *names):
    """The parameters with corrections of rank 3 to some kernels."""
    kernels = {}
    for seed, name in enumerate(names):
        experts, width, output = (kernel := getattr(params, name)).shape
        down, up = normal(30 + seed, experts, width, 3), normal(40 + seed, experts, 3, output)
        kernels[name] = LowRankKernel(kernel, down, up, scale=0.5)
    return params._replace(**kernels)


def arrays(tree, dtype=jnp.float32):
    return jax.tree.map(lambda array: jnp.asarray(np.asarray(array), dtype), tree)


GATED = ExpertsParams(
    router_kernel=normal(1, D, E), router_bias=normal(2, E),
    up_kernel=normal(3, E, D, F), up_bias=normal(4, E, F),
    down_kernel=normal(5, E, F, D), down_bias=normal(6, E, D),
    gate_kernel=normal(7, E, D, F), gate_bias=normal(8, E, F),
)  # fmt: skip
PLAIN = GATED._replace(gate_kernel=None, gate_bias=None)
BARE = ExpertsParams(*GATED[:4])
X = normal(9, 2, 3, D)
MASK = np.array([[True, True, False], [True, False, True]])
ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def reference(params, x, k, normalize_weights=True, activation="silu", mask=None):
    """Output and auxiliary losses, token by token and expert by expert."""
    act, output, logits = ACTIVATIONS[activation], np.zeros_like(x), []
    real = np.ones(x.shape[:-1], bool) if mask is None else mask
    load, probability = np.zeros(E), np.zeros(E)

    def bias(name, expert):
        return 0 if getattr(params, name) is None else getattr(params, name)[expert]

    for place in np.ndindex(x.shape[:-1]):
        token = x[place]
        scores = token @ params.router_kernel + bias("router_bias", slice(None))
        p = np.exp(scores - scores.max())
        p /= p.sum()
        chosen = sorted(range(E), key=lambda e: (-p[e], e))[:k]
        for e in chosen:
            hidden = token @ params.up_kernel[e] + bias("up_bias", e)
            if params.gate_kernel is None:
                hidden = act(hidden)
            else:
                hidden = hidden * act(token @ params.gate_kernel[e] + bias("gate_bias", e))
            weight = p[e] / p[chosen].sum() if normalize_weights else p[e]
            output[place] += weight * (hidden @ params.down_kernel[e] + bias("down_bias", e))
        if real[place]:
            load[chosen] += 1 / real.sum()
            probability += p / real.sum()
            logits.append(scores)
    z_loss = np.mean([np.log(np.exp(scores).sum()) ** 2 for scores in logits])
    return output, E * (load @ probability), z_loss, load, 0.0
