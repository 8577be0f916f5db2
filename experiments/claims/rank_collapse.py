"""Without skip connections, attention makes all tokens alike, doubly exponentially with depth.

python experiments/claims/rank_collapse.py
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from claim import Finding, judge, main
from matplotlib.figure import Figure

from jaxformer.functional import (
    FeedForwardParams,
    MultiHeadParams,
    feed_forward,
    multi_head_attention,
)

VARIANTS = {
    "attention alone": (False, False),
    "with MLPs": (False, True),
    "with skips": (True, False),
}


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes of the layers."""

    depth: int = 12
    tokens: int = 32
    width: int = 64
    heads: int = 4
    seeds: int = 3


SIZES = {
    "toy": Size(depth=6, width=32),
    "cpu": Size(),
    "accelerator": Size(depth=24, tokens=128, width=768, heads=12),
}


@functools.partial(jax.jit, static_argnames=("size", "skips", "mlps"))
def layer(x: jax.Array, rng: jax.Array, size: Size, *, skips: bool, mlps: bool) -> jax.Array:
    """One layer with parameters drawn anew."""
    keys = jax.random.split(rng, 6)
    width, inner = size.width, 4 * size.width

    def draw(key: jax.Array, *shape: int) -> jax.Array:
        return jax.random.normal(key, shape, x.dtype) / shape[0] ** 0.5

    attention = MultiHeadParams(*(draw(key, width, width) for key in keys[:4]))
    attended = multi_head_attention(attention, x, num_heads=size.heads).output
    x = x + attended if skips else attended
    if mlps:
        x = feed_forward(
            FeedForwardParams(draw(keys[4], width, inner), draw(keys[5], inner, width)), x
        )
    return x


def residuals(size: Size, seed: int, *, skips: bool, mlps: bool) -> np.ndarray:
    """Relative residual of the tokens, before the first layer and after each."""
    start, *keys = jax.random.split(jax.random.key(seed), size.depth + 1)
    x = jax.random.normal(start, (1, size.tokens, size.width), jnp.float64)

    def residual(x: jax.Array) -> float:
        return float(jnp.linalg.norm(x - x.mean(1, keepdims=True)) / jnp.linalg.norm(x))

    residuals_by_layer = [residual(x)]
    for key in keys:
        x = layer(x, key, size, skips=skips, mlps=mlps)
        residuals_by_layer.append(residual(x))
    return np.array(residuals_by_layer)


def exponent(curve: np.ndarray) -> float:
    """Smallest exponent of a layer, from a residual below 0.1 to one that float64 still tells."""
    logs = [
        np.log(after) / np.log(before)
        for before, after in zip(curve[:-1], curve[1:], strict=True)
        if before < 0.1 and after > 1e-13
    ]
    return float(min(logs)) if logs else 0.0


def measure(size: Size) -> Finding:
    """Follows the residual through the depth, in each variant and seed."""
    curves = {
        name: [residuals(size, seed, skips=skips, mlps=mlps) for seed in range(size.seeds)]
        for name, (skips, mlps) in VARIANTS.items()
    }
    exponents = [exponent(curve) for curve in curves["attention alone"]]
    with_skips = [float(curve[-1]) for curve in curves["with skips"]]
    verdict = judge(min(exponents) > 2, min(with_skips) > 0.1)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for index, (name, runs) in enumerate(curves.items()):
        for run in runs:
            axes.plot(
                np.maximum(run, 1e-16), color=f"C{index}", label=name if run is runs[0] else ""
            )
    axes.set(
        yscale="log",
        xlabel="layer",
        ylabel="relative residual",
        title="Tokens become alike with depth",
    )
    axes.legend()
    without_skips = [curve[-1] for curve in curves["with MLPs"]]
    summary = (
        f"Attention alone: exponent per layer {min(exponents):.2f} to {max(exponents):.2f}; "
        f"residual after {size.depth} layers with skips {min(with_skips):.2f} to "
        f"{max(with_skips):.2f}, with MLPs and no skips {max(without_skips):.1e} at most."
    )
    return Finding(verdict, summary, figure, {"exponents": exponents, "kept": with_skips})


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main("rank_collapse", SIZES, measure)
