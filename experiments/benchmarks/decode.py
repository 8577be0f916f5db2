"""Times generation with a model of GPT-2 124M's shape, float32, random parameters.

Run: python experiments/benchmarks/decode.py
"""

import dataclasses
import time

import jax
import jax.numpy as jnp

from jaxformer.config import SamplingConfig, load_config
from jaxformer.inference import generate
from jaxformer.models import Decoder


def main(new_tokens: int = 64, repeats: int = 3) -> None:
    config = load_config("configs/gpt2_124m.toml").model
    model = Decoder(dataclasses.replace(config, dtype="float32"))
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


if __name__ == "__main__":
    main()
