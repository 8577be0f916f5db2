"""Layers by pattern from a config alone: five local layers and a global one, as in Gemma 3.

    python examples/layer_pattern.py

The pattern is in layer_pattern.toml. A scan compiles one repeat of it, whatever the depth.
"""

import dataclasses
import pathlib
import time

import jax
import numpy as np

from jaxformer.config import load_config
from jaxformer.models import Decoder, init_cache

FEW, DEPTHS = 8, (26, 52)
config = load_config(pathlib.Path(__file__).with_suffix(".toml")).model
tokens = np.random.default_rng(0).integers(0, config.vocab_size, (1, config.max_len), np.int32)


def compile_scan(depth):
    """Compile time in seconds, and the number of lines of HLO."""
    model = Decoder(dataclasses.replace(config, num_layers=depth))
    variables = {"params": jax.eval_shape(model.init_params, jax.random.key(0))}
    start = time.perf_counter()
    program = jax.jit(model.apply).lower(variables, tokens).compile()
    return time.perf_counter() - start, program.as_text().count("\n")


print("windows:", *(layer.local_window_size or "all" for layer in config.layer_overrides))
print("cached: ", *(cache.key.shape[2] for cache in init_cache(config, 1, config.max_len)))
scanned, looped = (
    Decoder(dataclasses.replace(config, num_layers=FEW, layer_execution=name))
    for name in ("scan", "loop")
)
variables = {"params": scanned.init_params(jax.random.key(0))}
first, second = (jax.jit(model.apply)(variables, tokens).logits for model in (scanned, looped))
gap = abs(first - second).max()
print(f"{FEW} layers, scanned and looped: logits up to {abs(first).max():.2f} differ by {gap:.0e}")
(seconds, lines), (seconds_of_twice, lines_of_twice) = map(compile_scan, DEPTHS)
print(f"{DEPTHS[0]} layers compile in {seconds:.1f} s to {lines:,} lines of HLO")
print(f"{DEPTHS[1]} layers compile in {seconds_of_twice:.1f} s to {lines_of_twice:,} lines")
if gap > 1e-4 or lines_of_twice > 1.3 * lines:
    raise SystemExit("scan and loop should agree, and a deeper scan should not compile more HLO")
