"""Prints every figure that the README claims of the functional core, all in one run.

Accuracy against float64 NumPy, masking, the speed of causal attention beside
`jax.nn` and PyTorch (where it is installed), memory, and the chunked loss.

Run: python experiments/benchmarks/functional_core.py --repeats 7
"""

import argparse
import dataclasses
import functools
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import cross_entropy
import jax
import jax.numpy as jnp
import numpy as np
from timing import interleaved, ratio

from jaxformer.functional import (
    attention_implementation,
    dot_product_attention,
    layer_norm,
    rotary_tables,
    sinusoidal_positions,
)

Arrays = list[np.ndarray]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of all that is measured.

    Args:
        float32_length: T of the accuracy in float32.
        bfloat16_length: T of the accuracy in bfloat16.
        last_position: of the accuracy of positions.
        speed: `[B, T, N, H]` of what is timed.
        memory: `[B, T, N, H]` of what the compiler plans.
        loss: arguments of `cross_entropy.compare`.
    """

    float32_length: int = 1024
    bfloat16_length: int = 4096
    last_position: int = 1_000_000
    speed: tuple[tuple[int, int, int, int], ...] = (
        (32, 128, 8, 64), (16, 256, 8, 64), (8, 512, 8, 64), (4, 1024, 12, 64), (2, 2048, 8, 64),
        (1, 4096, 8, 64), (1, 8192, 4, 64), (1, 16_384, 2, 64),
    )  # fmt: skip
    memory: tuple[int, int, int, int] = (1, 16_384, 8, 64)
    loss: dict[str, int] = dataclasses.field(default_factory=dict)


TINY = Sizes(
    float32_length=32, bfloat16_length=32, last_position=1000, speed=((1, 32, 2, 16),),
    memory=(1, 512, 2, 16), loss={"batch_size": 1, "length": 32, "vocab_size": 64, "width": 16},
)  # fmt: skip


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def with_gradients(attend: Callable[..., jax.Array]) -> Callable[..., Any]:
    """Function of (query, key, value, cotangent) to the output of attention and its gradients."""

    def run(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        output, pull = jax.vjp(attend, *arrays[:-1])
        return output, *pull(arrays[-1])

    return run


def causal(implementation: str) -> Callable[..., jax.Array]:
    return functools.partial(dot_product_attention, is_causal=True, implementation=implementation)


def exact(query: Any, key: Any, value: Any, cotangent: Any) -> Arrays:
    """Causal attention of `[T, N, H]` and its gradients in float64 NumPy."""
    query, key, value, cotangent = (
        np.asarray(x, np.float64).swapaxes(0, 1) for x in (query, key, value, cotangent)
    )
    scale = query.shape[-1] ** -0.5
    scores = scale * query @ key.swapaxes(1, 2)
    scores[:, ~np.tri(query.shape[1], dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    output = weights @ value
    slope = weights * (cotangent @ value.swapaxes(1, 2) - (cotangent * output).sum(-1)[..., None])
    gradients = scale * slope @ key, scale * slope.swapaxes(1, 2) @ query
    results = (output, *gradients, weights.swapaxes(1, 2) @ cotangent)
    return [x.swapaxes(0, 1) for x in results]


def largest_error(got: Any, expected: np.ndarray) -> float:
    """Returns the largest error as a share of the largest entry."""
    return float(np.abs(np.asarray(got, np.float64) - expected).max() / np.abs(expected).max())


def accuracy(sizes: Sizes) -> None:
    arrays = [normal(sizes.float32_length, 4, 64, seed=i) for i in range(4)]
    expected = exact(*arrays)
    for name in ("dense", "chunked"):
        got = jax.jit(with_gradients(causal(name)))(*arrays)
        errors = [largest_error(*pair) for pair in zip(got, expected, strict=True)]
        print(f"  {name:>8} float32, T = {sizes.float32_length:,}: forward {errors[0]:.1e}, "
              f"gradients {max(errors[1:]):.1e}")  # fmt: skip
    arrays = [normal(sizes.bfloat16_length, 2, 64, seed=i) for i in range(4)]
    short = [x.astype(jnp.bfloat16) for x in arrays]
    exact_output = exact(*short)[0]
    for name in ("dense", "chunked"):
        got = np.asarray(jax.jit(causal(name))(*short[:3]), np.float64)
        error = np.sqrt(np.square(got - exact_output).mean() / np.square(exact_output).mean())
        print(f"  {name:>8} bfloat16, T = {sizes.bfloat16_length:,}: relative RMS error "
              f"{error:.2e}")  # fmt: skip
    x = normal(64, 512) + np.float32(1e4)
    centred = x.astype(np.float64) - x.astype(np.float64).mean(-1, keepdims=True)
    normed = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + 1e-5)
    error = np.abs(np.asarray(jax.jit(layer_norm)(x), np.float64) - normed).max()
    print(f"  layer norm at mean 1e4: largest error {error:.1e}")
    positions = np.arange(0, sizes.last_position + 1, 13)
    angles = positions[:, None] * 10_000.0 ** (-np.arange(0, 64, 2) / 64)
    cos, sin = jax.jit(functools.partial(rotary_tables, head_dim=64))(positions)
    waves = jax.jit(functools.partial(sinusoidal_positions, d_model=64))(positions)
    pairs = ((cos, np.cos(angles)), (sin, np.sin(angles)), (waves[:, ::2], np.sin(angles)))
    error = max(
        np.abs(np.asarray(result, np.float64) - reference).max() for result, reference in pairs
    )
    print(f"  rotary and sinusoidal positions up to {sizes.last_position:,}: largest error "
          f"{error:.1e}")  # fmt: skip


def unattended() -> None:
    mask = np.ones((300, 300), bool)
    mask[17], mask[:, 40:60] = False, False  # a query that sees nothing, keys that none sees
    for name in ("dense", "chunked"):
        for dtype in (jnp.float16, jnp.bfloat16, jnp.float32):
            attend = functools.partial(dot_product_attention, implementation=name)
            run = jax.jit(with_gradients(functools.partial(attend, mask=mask)))
            arrays = [normal(300, 2, 16, seed=i).astype(dtype) for i in range(4)]
            clean = [np.asarray(x) for x in run(*arrays)]
            zero = (clean[0][17] == 0).all() and (clean[1][17] == 0).all()
            arrays[1][40:60], arrays[2][40:60] = np.nan, np.inf
            same = all(
                a.tobytes() == np.asarray(b).tobytes()
                for a, b in zip(clean, run(*arrays), strict=True)
            )
            print(f"  {name:>8} {dtype.__name__}: the row that sees nothing is 0 with gradient 0: "
                  f"{zero}; poisoned keys change no bit: {same}")  # fmt: skip


def torch_program(arrays: Arrays) -> Callable[[], Any]:
    """PyTorch's fused CPU attention on the same numbers, in the layout that it prefers."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    query, key, value, cotangent = (torch.tensor(x).transpose(1, 2).contiguous() for x in arrays)

    def run() -> None:
        leaves = [x.detach().requires_grad_() for x in (query, key, value)]
        torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True).backward(
            cotangent
        )

    return run


def speed(sizes: Sizes, repeats: int) -> None:
    has_torch = importlib.util.find_spec("torch") is not None
    if not has_torch:
        print("  without PyTorch, which is not installed")
    for shape in sizes.speed:
        arrays = [normal(*shape, seed=i) for i in range(4)]
        device_arrays = [jnp.asarray(x) for x in arrays]
        choice = attention_implementation(*device_arrays[:3], is_causal=True).name
        functions = {choice: causal("auto")}
        if shape[1] <= 4096:  # all scores are in memory at once
            functions["jax.nn"] = functools.partial(jax.nn.dot_product_attention, is_causal=True)
        programs: dict[str, Callable[[], Any]] = {}
        compiling: dict[str, float] = {}
        for name, function in functions.items():
            start = time.perf_counter()
            compiled = jax.jit(with_gradients(function)).lower(*device_arrays).compile()
            compiling[name] = time.perf_counter() - start
            programs[name] = functools.partial(compiled, *device_arrays)
        if has_torch:
            programs["torch"] = torch_program(arrays)
        times = interleaved(programs, repeats if shape[1] <= 4096 else min(repeats, 3))
        for name, values in times.items():
            row = (f"  {shape!s:18} {name:>8}: min {min(values) * 1e3:7.1f} ms, "
                   f"median {statistics.median(values) * 1e3:7.1f} ms")  # fmt: skip
            if name in compiling:
                row += f", traced and compiled in {compiling[name]:.1f} s"
            if name != choice:
                row += f"; speed over it: {ratio(values, times[choice])}"
            print(row)


def memory(sizes: Sizes) -> None:
    shape = jax.ShapeDtypeStruct(sizes.memory, jnp.float32)
    planned = {
        name: jax.jit(with_gradients(causal(name)))
        .lower(shape, shape, shape, shape)
        .compile()
        .memory_analysis()
        .temp_size_in_bytes
        for name in ("chunked", "dense")
    }
    chunked, dense = (planned[name] / 2**20 for name in ("chunked", "dense"))
    share = f"1/{dense / chunked:.0f}"
    print(f"  {sizes.memory} causal: chunked {chunked:,.0f} MiB, dense {dense:,.0f} MiB: {share}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--tiny", action="store_true", help="sizes that only try the script")
    arguments = parser.parse_args()
    sizes, repeats = TINY if arguments.tiny else Sizes(), arguments.repeats
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}")
    print("Accuracy, against float64")
    accuracy(sizes)
    print("What cannot be attended to")
    unattended()
    print("Causal attention, forward and backward, float32")
    speed(sizes, repeats)
    print("Temporary memory of forward and backward, as the compiler planned it")
    memory(sizes)
    print("Cross-entropy of a large vocabulary, value and gradients")
    cross_entropy.compare(repeats=repeats, **sizes.loss)


if __name__ == "__main__":
    main()
