"""Memory and communication of decoding on a split model, by the TPU's own compiler.

A decoder of 1.7 B parameters, float32, 8 rows of 1,024 tokens, on four v5e. No TPU is needed:

    pip install -e ".[tpu]"
    JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 python experiments/benchmarks/tpu_decoding.py
"""

import math
import re
from collections import Counter

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec

from jaxformer.config import MeshConfig, ModelConfig, RotaryConfig, SamplingConfig
from jaxformer.inference.decodable import with_automatic_attention
from jaxformer.inference.decoding_loop import Prompts, decode, prefill
from jaxformer.inference.token_rules import TokenRules
from jaxformer.models import Decoder
from jaxformer.modules.layer_variables import split_layers
from jaxformer.training import MeshRunner

MODEL = ModelConfig(
    vocab_size=50304, max_len=1024, num_layers=24, d_model=2048, num_heads=16,
    positions=RotaryConfig(), norm="rms_norm", activation="swiglu", use_bias=False,
)  # fmt: skip
ROWS, PROMPT = 8, 512
COLLECTIVES = (
    r"= \S+ (all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all)(-start)?\("
)


def main():
    devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
    model = with_automatic_attention(Decoder(MODEL))
    shapes = jax.eval_shape(model.init_params, jax.random.key(0))
    whole = sum(leaf.size for leaf in jax.tree.leaves(shapes)) * 4 / 2**30
    print(f"parameters: {whole:.2f} GiB in all; GiB on each device:")
    for mesh in (MeshConfig(tensor=4), MeshConfig(fsdp=2, tensor=2), MeshConfig(fsdp=4)):
        runner = MeshRunner(mesh, devices)
        params = split_shapes(runner.template(shapes))
        everywhere = NamedSharding(jax.tree.leaves(params)[0].sharding.mesh, PartitionSpec())
        state = prefilled(model, params, everywhere)
        program = decode.lower(
            model, params, state, jax.ShapeDtypeStruct((), jnp.int32, sharding=everywhere),
            chunk_size=8, sampling=SamplingConfig(), rules=TokenRules(end_tokens=()),
        ).compile()  # fmt: skip
        cache = sum(bytes_per_device(leaf) for leaf in jax.tree.leaves(state.cache))
        memory = program.memory_analysis()
        found = Counter(name for name, _ in re.findall(COLLECTIVES, program.as_text()))
        print(
            f"fsdp {mesh.fsdp} tensor {mesh.tensor}: "
            f"parameters {sum(map(bytes_per_device, jax.tree.leaves(params))) / 2**30:.2f}, "
            f"cache {cache / 2**30:.2f}, temporary {memory.temp_size_in_bytes / 2**30:.2f}; "
            f"collectives {dict(found)}"
        )


def split_shapes(template):
    """Shapes of the parameters of each layer, as decoding uses them, each with its sharding."""
    split = jax.eval_shape(split_layers, template)

    def place(path, leaf):
        keys = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
        whole = template
        for key in keys:
            whole = whole[key]
        axes = whole.sharding.spec
        axes = PartitionSpec(*axes[1:]) if leaf.ndim < whole.ndim else axes
        sharding = NamedSharding(whole.sharding.mesh, axes)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree_util.tree_map_with_path(place, split)


def prefilled(model, params, everywhere):
    """State of decoding after the prompts, as the compiler places it."""

    def shape(*axes):
        return jax.ShapeDtypeStruct(axes, jnp.int32, sharding=everywhere)

    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), ROWS))
    keys = jax.ShapeDtypeStruct(keys.shape, keys.dtype, sharding=everywhere)
    lowered = prefill.lower(
        model, params, Prompts(shape(ROWS, PROMPT), shape(ROWS), keys, None, None),
        capacity=MODEL.max_len, track_seen=False, track_history=False,
    )  # fmt: skip
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        lowered.out_info, lowered.compile().output_shardings,
    )  # fmt: skip


def bytes_per_device(leaf):
    return jnp.dtype(leaf.dtype).itemsize * math.prod(leaf.sharding.shard_shape(leaf.shape))


if __name__ == "__main__":
    main()
