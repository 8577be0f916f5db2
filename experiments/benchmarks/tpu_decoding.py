"""Memory, communication and memory traffic of decoding on a split model, by the TPU's own compiler.

Two decoders on four v5e, 8 rows of 1,024 tokens: one of 1.7 B parameters in float32, and one of the
shape of Llama 3 8B in bfloat16. A token must at least read the parameters, but for the table that
embeds tokens, and the cache; a small model also keeps parameters on the chip. No TPU is needed:

    pip install -e ".[tpu]"
    python experiments/benchmarks/tpu_decoding.py
"""

import dataclasses
import importlib.util
import math
import os
import re
from collections import Counter

os.environ["JAX_PLATFORMS"] = "cpu"  # compiling for a TPU needs none: JAX shall not look for one

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from tpu_programs import CHUNK, traffic_by_part

from jaxformer.config import MeshConfig, ModelConfig, RotaryConfig, SamplingConfig
from jaxformer.functional.platforms import compiling_for
from jaxformer.inference.decodable import with_automatic_attention
from jaxformer.inference.decoding_loop import Prompts, decode, prefill
from jaxformer.inference.token_rules import TokenRules
from jaxformer.models import Decoder
from jaxformer.planning import ACCELERATORS
from jaxformer.planning.compiler import topology_devices
from jaxformer.training import MeshRunner

SMALL = ModelConfig(
    vocab_size=50304, max_len=1024, num_layers=24, d_model=2048, num_heads=16,
    positions=RotaryConfig(), norm="rms_norm", activation="swiglu", use_bias=False,
)  # fmt: skip
LARGE = dataclasses.replace(
    SMALL, vocab_size=128_256, num_layers=32, d_model=4096, num_heads=32, num_kv_heads=8,
    d_ff=14_336, tied_embeddings=False, dtype="bfloat16",
)  # fmt: skip
PLACES = (
    (SMALL, MeshConfig(tensor=4)), (SMALL, MeshConfig(fsdp=2, tensor=2)),
    (SMALL, MeshConfig(fsdp=4)), (LARGE, MeshConfig(tensor=4)),
)  # fmt: skip
ROWS, PROMPT = 8, 512
COLLECTIVES = (
    r"= \S+ (all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all)(-start)?\("
)


def main():
    if importlib.util.find_spec("libtpu") is None:
        print("without a TPU's compiler, which is not installed")
        return
    devices = topology_devices(ACCELERATORS["v5e"], "2x2")
    print("GiB on each device:")
    with compiling_for("tpu"):
        measure(devices)


def measure(devices):
    for config, mesh in PLACES:
        model, runner = with_automatic_attention(Decoder(config)), MeshRunner(mesh, devices)
        shapes = jax.tree.map(
            lambda leaf, dtype=config.dtype: jax.ShapeDtypeStruct(leaf.shape, dtype),
            jax.eval_shape(model.init_params, jax.random.key(0)),
        )
        params = runner.template(shapes)
        everywhere = NamedSharding(jax.tree.leaves(params)[0].sharding.mesh, PartitionSpec())
        state = prefilled(model, params, everywhere)
        program = decode.lower(
            model, params, state, jax.ShapeDtypeStruct((), jnp.int32, sharding=everywhere),
            chunk_size=CHUNK, sampling=SamplingConfig(), rules=TokenRules(end_tokens=()),
        ).compile()  # fmt: skip
        weights, cache = (
            sum(map(bytes_per_device, jax.tree.leaves(tree))) for tree in (params, state.cache)
        )
        table = 0 if config.tied_embeddings else bytes_per_device(params["embedding"]["embedding"])
        needed, moved = weights - table + cache, traffic_by_part(program.as_text()).total()
        temporaries = program.memory_analysis().temp_size_in_bytes
        collectives = Counter(name for name, _ in re.findall(COLLECTIVES, program.as_text()))
        print(
            f"{sum(leaf.size for leaf in jax.tree.leaves(shapes)) / 1e9:.1f} B {config.dtype}, "
            f"fsdp {mesh.fsdp} tensor {mesh.tensor}: parameters {weights / 2**30:.2f}, "
            f"cache {cache / 2**30:.2f}, temporary {temporaries / 2**30:.2f}; a token moves "
            f"{moved / 2**30:.2f}, and must move {needed / 2**30:.2f} ({needed / moved:.0%}); "
            f"collectives {dict(collectives)}",
            flush=True,
        )


def prefilled(model, params, everywhere):
    """State of decoding after the prompts, as the compiler places it."""

    def shape(*axes):
        return jax.ShapeDtypeStruct(axes, jnp.int32, sharding=everywhere)

    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), ROWS))
    keys = jax.ShapeDtypeStruct(keys.shape, keys.dtype, sharding=everywhere)
    lowered = prefill.lower(
        model, params, Prompts(shape(ROWS, PROMPT), shape(ROWS), keys, None, None),
        capacity=model.config.max_len, track_history=False,
    )  # fmt: skip
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        lowered.out_info, lowered.compile().output_shardings,
    )  # fmt: skip


def bytes_per_device(leaf):
    return jnp.dtype(leaf.dtype).itemsize * math.prod(leaf.sharding.shard_shape(leaf.shape))


if __name__ == "__main__":
    main()
