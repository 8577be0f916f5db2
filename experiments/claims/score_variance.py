"""Dot products grow with the width of a head; without scaling, the softmax over them saturates.

python experiments/claims/score_variance.py
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from claim import Finding, judge, main
from matplotlib.figure import Figure

from jaxformer.functional import attention_weights, dot_product_attention

SCALES = {"not scaled": 1.0, "scaled": None}  # None is 1 / sqrt(d_k)


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes; every row has as many queries as keys."""

    widths: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
    rows: int = 256
    length: int = 64
    heads: int = 1
    seeds: int = 3


SIZES = {
    "toy": Size(widths=(4, 1024), rows=64, length=32, seeds=1),
    "cpu": Size(),
    "accelerator": Size(rows=32, length=256, heads=8),
}


@functools.partial(jax.jit, static_argnames=("size", "width", "scale"))
def statistics(seed: int, size: Size, width: int, scale: float | None) -> dict[str, jax.Array]:
    """Variance of the dot products, and gradients and weights of the softmax over them."""
    keys = jax.random.split(jax.random.key(seed), 3)
    shape = size.rows, size.length, size.heads
    query, key = (jax.random.normal(rng, (*shape, width)) for rng in keys[:2])
    value = jax.random.normal(keys[2], (*shape, 1))
    dot_products = attention_weights(query, key, scale=1.0, stage="scores")
    weights = attention_weights(query, key, scale=scale)

    def output(bias: jax.Array) -> jax.Array:
        return dot_product_attention(query, key, value, bias, scale=scale).sum()

    # A bias is added to the scores, so its gradient is that of the inputs of the softmax.
    norms = jnp.linalg.norm(jax.grad(output)(jnp.zeros_like(weights)), axis=-1)
    return {
        "variance": dot_products.var(), "gradient": jnp.median(norms), "mean": norms.mean(),
        "largest": jnp.median(weights.max(-1)),
    }  # fmt: skip


def rules_hold(
    variance: np.ndarray, plain: np.ndarray, largest: np.ndarray, scaled: np.ndarray
) -> list[bool]:
    """The parts of the rule.

    Args:
        variance: variance over d_k, `[seeds, widths]`; so are the others.
        plain: gradient without scaling.
        largest: largest weight without scaling.
        scaled: gradient with scaling.
    """
    return [
        bool((abs(variance - 1) < 0.05).all()),
        bool((plain[:, -1] < plain[:, 0] / 100).all() and (largest[:, -1] > 0.95).all()),
        bool((scaled.max(1) < 2 * scaled.min(1)).all()),
    ]


def measure(size: Size) -> Finding:
    """Measures every width and seed, with and without scaling."""
    records = {
        name: [
            [statistics(seed, size, width, scale) for width in size.widths]
            for seed in range(size.seeds)
        ]
        for name, scale in SCALES.items()
    }

    def table(name: str, statistic: str) -> np.ndarray:
        return np.array([[float(record[statistic]) for record in row] for row in records[name]])

    variance = table("not scaled", "variance")
    ratio = variance / np.array(size.widths)
    plain, scaled = (table(name, "gradient") for name in SCALES)
    largest = table("not scaled", "largest")
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(size.widths, variance.T, "C0.")
    left.plot(size.widths, size.widths, "k:", label="d_k")
    left.set(xlabel="d_k", xscale="log", yscale="log", title="Variance of q · k")
    left.legend()
    for index, name in enumerate(SCALES):
        for statistic, style in (("gradient", "-"), ("mean", "--")):
            values = table(name, statistic)
            kind = "median" if statistic == "gradient" else "mean"
            right.plot(size.widths, values.mean(0), f"C{index}{style}", label=f"{name}, {kind}")
            right.plot(size.widths, values.T, f"C{index}.")
    right.set(xlabel="d_k", xscale="log", yscale="log", title="Gradient of the softmax's inputs")
    right.legend()
    falls, first, last = plain[:, 0] / plain[:, -1], size.widths[0], size.widths[-1]
    summary = (
        f"Variance over d_k: {ratio.min():.3f} to {ratio.max():.3f}. From d_k = {first} to {last}, "
        f"the median gradient without scaling falls by a factor of {falls.min():.0f} to "
        f"{falls.max():.0f}, and the median of the largest weight rises to "
        f"{largest[:, -1].min():.4f} or more. With scaling, the gradients at all widths are within "
        f"a factor of {(scaled.max(1) / scaled.min(1)).max():.2f}."
    )
    numbers = {
        "widths": size.widths, "variance / d_k": ratio.tolist(), "largest weight": largest.tolist(),
        **{f"gradient, {name}": table(name, "gradient").tolist() for name in SCALES},
        **{f"mean gradient, {name}": table(name, "mean").tolist() for name in SCALES},
    }  # fmt: skip
    return Finding(judge(*rules_hold(ratio, plain, largest, scaled)), summary, figure, numbers)


if __name__ == "__main__":
    main("score_variance", SIZES, measure)
