"""Parameters of a small mixture of experts, and its float64 reference."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.functional import ExpertsParams, LowRankKernel, Routing

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


def choose(logits, bias, k, routing):
    """Scores of all experts, those that a token chooses, and their weights."""
    if routing.scores == "softmax":
        scores = np.exp(logits - logits.max())
        scores /= scores.sum()
    else:
        scores = 1 / (1 + np.exp(-logits))
    ranks, size = scores + bias, len(logits) // routing.num_groups
    of_groups = [sum(sorted(ranks[i : i + size])[-2:]) for i in range(0, len(ranks), size)]
    groups = np.argsort(-np.array(of_groups), kind="stable")[: routing.num_groups_per_token]
    order = np.argsort(-ranks, kind="stable")
    chosen = [expert for expert in order if expert // size in groups][:k]
    weights = scores[chosen] / (scores[chosen].sum() if routing.normalize_weights else 1)
    return scores, chosen, routing.scale * weights


def reference(params, x, k, routing=Routing(), activation="silu", mask=None):  # noqa: B008
    """Output and auxiliary losses, token by token and expert by expert."""
    act, output, logits = ACTIVATIONS[activation], np.zeros_like(x), []
    real = np.ones(x.shape[:-1], bool) if mask is None else mask
    count = params.router_kernel.shape[-1]
    load, share = np.zeros(count), np.zeros(count)

    def bias(name, expert):
        return 0 if getattr(params, name) is None else getattr(params, name)[expert]

    for place in np.ndindex(x.shape[:-1]):
        token = x[place]
        z = token @ params.router_kernel + bias("router_bias", slice(None))
        scores, chosen, weights = choose(z, bias("selection_bias", slice(None)), k, routing)
        for e, weight in zip(chosen, weights, strict=True):
            hidden = token @ params.up_kernel[e] + bias("up_bias", e)
            if params.gate_kernel is None:
                hidden = act(hidden)
            else:
                hidden = hidden * act(token @ params.gate_kernel[e] + bias("gate_bias", e))
            output[place] += weight * (hidden @ params.down_kernel[e] + bias("down_bias", e))
        if real[place]:
            load[chosen] += 1 / real.sum()
            share += scores / scores.sum() / real.sum()
            logits.append(z)
    z_loss = np.mean([np.log(np.exp(z).sum()) ** 2 for z in logits])
    return output, count * (load @ share), z_loss, load, 0.0
