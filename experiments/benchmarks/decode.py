"""Times greedy generation, float32, random parameters; by default of GPT-2 124M's shape.

Run: python experiments/benchmarks/decode.py --layers 6 --width 384 --heads 6 --vocab-size 257
"""

import argparse
import dataclasses
import pathlib
import time

import jax
import jax.numpy as jnp

from jaxformer.config import ModelConfig, SamplingConfig, load_config
from jaxformer.inference import generate
from jaxformer.models import Decoder

GPT2 = pathlib.Path(__file__).parents[2] / "configs" / "gpt2_124m.toml"


def compare(config: ModelConfig, new_tokens: int, repeats: int) -> None:
    """Prints the seconds of a first call and the speed of later ones, of one row and of eight."""
    model = Decoder(config)
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 2), jnp.int32))["params"]
    for batch_size in (1, 8):
        seconds = []
        for _ in range(repeats + 1):
            start = time.perf_counter()
            generate(
                model,
                params,
                [[1, 2, 3, 4, 5]] * batch_size,
                max_new_tokens=new_tokens,
                rng=jax.random.key(0),
                sampling=SamplingConfig(temperature=0),
            )
            seconds.append(time.perf_counter() - start)
        speed = batch_size * new_tokens / min(seconds[1:])
        print(f"batch {batch_size}: first call {seconds[0]:.1f} s, then {speed:.0f} tokens/s")


def main() -> None:
    gpt2 = load_config(GPT2).model
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=gpt2.num_layers)
    parser.add_argument("--width", type=int, default=gpt2.d_model)
    parser.add_argument("--heads", type=int, default=gpt2.num_heads)
    parser.add_argument("--vocab-size", type=int, default=gpt2.vocab_size)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    config = dataclasses.replace(
        gpt2, num_layers=chosen.layers, d_model=chosen.width, num_heads=chosen.heads,
        vocab_size=chosen.vocab_size, dtype="float32",
    )  # fmt: skip
    compare(config, chosen.new_tokens, chosen.repeats)


if __name__ == "__main__":
    main()
