"""Programs of generation as a TPU's compiler makes them: memory, traffic, kernels, compile time.

A decoder of the shape of GPT-2 (12 heads, D = 768, bfloat16) on one chip: the forward pass of whole
rows, prefill through a cache, and one decoding step, whose bytes are compared with those that it
must read: the parameters, but for the table that embeds tokens, and the cache. No TPU is needed:

    pip install -e ".[tpu]"
    python experiments/benchmarks/tpu_programs.py --layers 4 --chips v5e
"""

import argparse
import collections
import importlib.util
import os
import time

os.environ["JAX_PLATFORMS"] = "cpu"  # compiling for a TPU needs none: JAX shall not look for one

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.sharding import SingleDeviceSharding
from tpu_traffic import read_traffic

from jaxformer.config import ModelConfig, RotaryConfig, SamplingConfig
from jaxformer.functional.platforms import compiling_for
from jaxformer.hlo import parse_hlo
from jaxformer.inference.decodable import with_automatic_attention
from jaxformer.inference.decoding_loop import Prompts, decode, prefill
from jaxformer.inference.token_rules import TokenRules
from jaxformer.models import Decoder
from jaxformer.planning import ACCELERATORS
from jaxformer.planning.compiler import topology_devices

TOPOLOGIES = {"v5e": "2x2", "v6e": "2x2"}
MIB = 2**20
CHUNK = 8  # tokens of one call of the decoding loop


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--chips", nargs="+", default=list(TOPOLOGIES), choices=TOPOLOGIES)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=2048, help="of a row, and capacity")
    parser.add_argument("--window", type=int, help="local_window_size of all layers")
    parser.add_argument("--programs", nargs="+", default=["forward", "prefill", "decode"])
    options = parser.parse_args()
    if importlib.util.find_spec("libtpu") is None:
        print("without a TPU's compiler, which is not installed")
        return
    config = ModelConfig(
        vocab_size=50304, max_len=options.tokens, num_layers=options.layers, d_model=768,
        num_heads=options.heads, positions=RotaryConfig(), norm="rms_norm", dtype=options.dtype,
        local_window_size=options.window,
    )  # fmt: skip
    model = with_automatic_attention(Decoder(config))
    for chip in options.chips:
        device = topology_devices(ACCELERATORS[chip], TOPOLOGIES[chip])[0]
        with compiling_for("tpu"):
            for name, lower, minimum in programs(model, options, SingleDeviceSharding(device)):
                print(f"{chip} {name}: {figures(lower, minimum)}", flush=True)


def programs(model, options, sharding):
    """Name, function that lowers, and least traffic in bytes, of each program."""

    def place(tree):
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
        )

    rows, config = options.rows, model.config
    params = jax.eval_shape(model.init_params, jax.random.key(0))
    params = place(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, config.dtype), params))
    tokens = place(jax.ShapeDtypeStruct((rows, options.tokens), jnp.int32))
    lengths = place(jax.ShapeDtypeStruct((rows,), jnp.int32))
    keys = place(jax.eval_shape(lambda: jax.random.split(jax.random.key(0), rows)))
    prompts = Prompts(tokens, lengths, keys, None, None)
    settings = {"capacity": options.tokens, "track_history": False}

    @jax.jit
    def forward(params, tokens, lengths):
        def last_logits(model):
            hidden = model.hidden_states(tokens, lengths=lengths).hidden
            return model.logits(hidden[jnp.arange(rows), lengths - 1])

        return nn.apply(last_logits, model)({"params": params})

    weights = num_bytes(params)
    if "forward" in options.programs:
        yield "forward", lambda: forward.lower(params, tokens, lengths), weights
    filled = jax.eval_shape(
        lambda params, prompts: prefill(model, params, prompts, **settings),
        params, prompts,
    )  # fmt: skip
    cache = num_bytes(filled.cache)
    if "prefill" in options.programs:
        yield (
            "prefill",
            lambda: prefill.lower(model, params, prompts, **settings),
            weights + cache,
        )
    if "decode" in options.programs:
        limit = place(jax.ShapeDtypeStruct((), jnp.int32))
        yield (
            "decoding step",
            lambda: decode.lower(
                model, params, place(filled), limit, chunk_size=CHUNK, sampling=SamplingConfig(),
                rules=TokenRules(end_tokens=()),
            ),
            weights + cache,
        )  # fmt: skip


def figures(lower, minimum):
    """The figures of a program, in words."""
    start = time.process_time()
    lowered = lower()
    tracing, start = time.process_time() - start, time.process_time()
    compiled = lowered.compile()
    compiling, memory = time.process_time() - start, compiled.memory_analysis()
    text = compiled.as_text()
    traffic = traffic_by_part(text)
    moved = traffic.total()
    parts = ", ".join(f"{part} {size / MIB:,.0f}" for part, size in traffic.most_common(6))
    return (
        f"temporaries {memory.temp_size_in_bytes / MIB:,.0f} MiB; moves {moved / MIB:,.0f} MiB, "
        f"{moved / minimum:.2f} of parameters and cache, {minimum / MIB:,.0f} ({parts}); "
        f"XLA counts {compiled.cost_analysis()['bytes accessed'] / MIB:,.0f} MiB; "
        f"{text.count('tpu_custom_call')} kernels; HLO {len(lowered.as_text()) / 1000:,.0f} kB; "
        f"traced in {tracing:.1f} s, compiled in {compiling:.1f} s of a core"
    )


def traffic_by_part(text):
    """Bytes that a program moves, by part of the model; for a token if it decodes several."""
    program = parse_hlo(text)
    whole = collections.Counter(read_traffic(program))
    loops = [
        op
        for op in program.instructions.values()
        if op.opcode == "while" and op.op_name.endswith("jit(decode)/while")
    ]
    if not loops:
        return whole
    (loop,) = loops
    (body,) = loop.called("body")
    inside = read_traffic(body)
    return collections.Counter({
        part: inside.get(part, 0) + (size - loop.trip_count * inside.get(part, 0)) // CHUNK
        for part, size in whole.items()
    })  # fmt: skip


def num_bytes(tree):
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


if __name__ == "__main__":
    main()
