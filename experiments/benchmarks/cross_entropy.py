"""Times the loss of a large vocabulary from hidden states: all logits at once, or in chunks.

Both compute the loss and its gradients with respect to the hidden states and the table, by turns in
one process, so that a noisy machine is equally noisy to both. Prints times, the memory that
each needs besides its inputs and outputs (as the compiler planned it), and compile times.

Run: python experiments/benchmarks/cross_entropy.py --dtype bfloat16 --chunk-size 256
"""

import argparse
import functools
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from timing import interleaved, ratio

from jaxformer.functional import chunked_cross_entropy, cross_entropy, unembed


def compare(
    batch_size: int = 8, length: int = 256, vocab_size: int = 50_257, width: int = 768,
    dtype: str = "float32", chunk_size: int | None = None, repeats: int = 7,
) -> None:  # fmt: skip
    """Prints times, memory and compile times of both."""

    def dense(hidden: jax.Array, table: jax.Array, labels: jax.Array) -> jax.Array:
        return cross_entropy(unembed(table, hidden), labels)[0]

    def chunked(hidden: jax.Array, table: jax.Array, labels: jax.Array) -> jax.Array:
        return chunked_cross_entropy(hidden, table, labels, chunk_size=chunk_size)[0]

    rng = np.random.default_rng(0)
    shape = (batch_size, length)
    hidden = jnp.asarray(rng.standard_normal((*shape, width)), dtype)
    table = jnp.asarray(0.05 * rng.standard_normal((vocab_size, width)), jnp.float32)
    labels = jnp.asarray(rng.integers(0, vocab_size, shape))

    programs, memory, compile_times = {}, {}, {}
    for function in (dense, chunked):
        name = function.__name__
        lowered = jax.jit(jax.value_and_grad(function, (0, 1))).lower(hidden, table, labels)
        start = time.perf_counter()
        compiled = lowered.compile()
        compile_times[name] = time.perf_counter() - start
        memory[name] = compiled.memory_analysis().temp_size_in_bytes
        programs[name] = functools.partial(compiled, hidden, table, labels)
    times = interleaved(programs, repeats)

    print(f"  {shape[0]} x {shape[1]} tokens, V {vocab_size:,}, D {width}, hidden "
          f"{dtype}, table float32, on {jax.devices()[0].device_kind}")  # fmt: skip
    for name, values in times.items():
        print(
            f"  {name:>8}: min {min(values):6.2f} s  median {statistics.median(values):6.2f} s  "
            f"temporary {memory[name] / 1e6:7.1f} MB  compile {compile_times[name]:.2f} s"
        )
    print(f"  time chunked / dense: {ratio(times['chunked'], times['dense'])}; memory "
          f"1/{memory['dense'] / memory['chunked']:.1f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--vocab-size", type=int, default=50_257, help="by default GPT-2's")
    parser.add_argument("--width", type=int, default=768, help="by default GPT-2 124M's")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--chunk-size", type=int, help="tokens; by default the function chooses")
    parser.add_argument("--repeats", type=int, default=7)
    compare(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
