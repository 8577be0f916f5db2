"""Training steps on TPUs, as their compiler plans them: memory traffic, temporaries, utilization.

Three sizes at two lengths on four chips each, with 8,192 tokens a chip: as "auto" has it, which is
layers in a scan and attention by splash, with remat "dots"; with remat "full"; with layers in a
loop; with chunked attention; and a plain Linen model with the attention of `jax.nn`. Without
options, only the first. Parameters of 1.3 B are split over the four chips, but in plain Linen on
each.

The time is the largest of three bounds at peak rates: arithmetic, memory and interconnect.
Arithmetic is that of the program: with what remat computes again, and hidden pairs of causal
attention, which a kernel skips. A share of arithmetic below 100 % says that memory or interconnect
holds it back. Bytes that a kernel moves are counted once. No TPU is needed, but
`pip install "jaxformer[tpu]"`; a program takes a minute, in a loop or with chunked attention
several.

Run: python experiments/benchmarks/tpu_training.py --sizes 124M --chips v5e --models auto plain
"""

import argparse
import functools
import importlib.util
import os
from collections.abc import Mapping
from typing import NamedTuple

# Compiling for a TPU needs none: JAX shall not look for one.
os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from tpu_traffic import traffic_of
from train_step import PlainDecoder, plain_step

from jaxformer.accelerators import Accelerator
from jaxformer.config import (
    AdamWConfig,
    DataConfig,
    ExperimentConfig,
    MeshConfig,
    ModelConfig,
    ScheduleConfig,
    TokenizerConfig,
    TrainingConfig,
)
from jaxformer.planning import ACCELERATORS, count_flops, make_plan
from jaxformer.planning.compiler import topology_devices

SIZES = {  # layers, d_model, heads; of GPT-3 (Brown et al., 2020, table 2.1)
    "124M": (12, 768, 12),
    "350M": (24, 1024, 16),
    "1.3B": (24, 2048, 16),
}
TOPOLOGIES = {"v5e": "2x2", "v5p": "2x2x1", "v6e": "2x2"}
NUM_CHIPS, TOKENS, VOCAB_SIZE = 4, 8192, 50304


class Figures(NamedTuple):
    """Of a step on one chip: bytes, FLOPs, and the least seconds for each of three bounds."""

    traffic: Mapping[str, int]
    temporaries: int
    flops: float
    seconds: Mapping[str, float]


def jaxformer_step(
    size: str, length: int, chip: Accelerator,
    *, remat: str = "dots", attention: str = "auto", layers: str = "auto",
) -> Figures | None:  # fmt: skip
    """Figures of jaxformer's step; None if it does not fit."""
    num_layers, width, heads = SIZES[size]
    config = ExperimentConfig(
        model=ModelConfig(
            vocab_size=VOCAB_SIZE, max_len=length, num_layers=num_layers, d_model=width,
            num_heads=heads, positions="learned", activation="gelu_tanh", dtype="bfloat16",
            remat=remat, attention_implementation=attention, layer_execution=layers,
        ),
        data=DataConfig(paths=("none.txt",)),
        tokenizer=TokenizerConfig(kind="bpe", vocab_size=VOCAB_SIZE),
        optimizer=AdamWConfig(learning_rate=1e-4),
        schedule=ScheduleConfig(name="constant"),
        training=TrainingConfig(steps=1, batch_size=NUM_CHIPS * TOKENS // length),
        mesh=MeshConfig(fsdp=NUM_CHIPS if size == "1.3B" else 1),
    )  # fmt: skip
    plan = make_plan(config, chip, topology=TOPOLOGIES[chip.name])
    if not plan.fits:
        return None
    compiled = plan.compiled
    traffic = traffic_of(compiled.text)
    seconds = {**plan.seconds, "memory": sum(traffic.values()) / chip.memory_bandwidth}
    return Figures(traffic, compiled.temporaries, plan.flops / NUM_CHIPS, seconds)


def plain(size: str, length: int, chip: Accelerator) -> Figures | None:
    """Figures of a plain Linen model, each block rematerialized; None if it does not fit."""
    layers, width, heads = SIZES[size]
    model = PlainDecoder(
        layers, heads, width, length, VOCAB_SIZE, jnp.bfloat16, remat=True,
        attention_fn=attend_by_jax_nn,
    )  # fmt: skip
    rows, optimizer = TOKENS // length, optax.adamw(1e-4)
    mesh = jax.make_mesh(
        (NUM_CHIPS,), ("data",), axis_types=(AxisType.Auto,),
        devices=topology_devices(chip, TOPOLOGIES[chip.name]),
    )  # fmt: skip

    def placed(tree: object, *axes: str) -> object:
        split = NamedSharding(mesh, PartitionSpec(*axes))
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=split), tree
        )

    tokens = jax.ShapeDtypeStruct((NUM_CHIPS * rows, length), jnp.int32)
    params = jax.eval_shape(model.init_params, jax.random.key(0))
    state = placed((params, jax.eval_shape(optimizer.init, params)))
    batch = placed({"tokens": tokens, "labels": tokens}, "data")
    step = plain_step(model, optimizer)
    try:
        compiled = step.lower(state, batch).compile()
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return None
    traffic = {"all": sum(traffic_of(compiled.as_text()).values())}
    flops = count_flops(step, state, batch) / NUM_CHIPS
    seconds = {
        "compute": flops / chip.bfloat16,
        "memory": sum(traffic.values()) / chip.memory_bandwidth,
        # Every chip sends and receives its share of the gradients twice, around a ring.
        "interconnect": 2 * 4 * sum(leaf.size for leaf in jax.tree.leaves(params))
        * (NUM_CHIPS - 1) / NUM_CHIPS / chip.interconnect,
    }  # fmt: skip
    return Figures(traffic, compiled.memory_analysis().temp_size_in_bytes, flops, seconds)


def attend_by_jax_nn(
    query: jax.Array, key: jax.Array, value: jax.Array, *args: object, **options: object
) -> jax.Array:
    """Causal attention of `jax.nn`, with the signature that Linen expects."""
    return jax.nn.dot_product_attention(query, key, value, is_causal=True)


def row(name: str, figures: Figures | None) -> str:
    """A row of the table, in Markdown."""
    if figures is None:
        return f"| {name} | does not fit | | | | | |"
    slowest = max(figures.seconds, key=figures.seconds.__getitem__)
    most = ", ".join(
        f"{source} {num_bytes / 2**30:.1f}"
        for source, num_bytes in list(figures.traffic.items())[:3]
    )
    time, compute = figures.seconds[slowest], figures.seconds["compute"]
    return (
        f"| {name} | {sum(figures.traffic.values()) / 2**30:.1f} | {most} "
        f"| {figures.temporaries / 2**30:.2f} | {figures.flops / 1e12:.2f} "
        f"| {time * 1e3:.1f} ({slowest}) | {compute / time:.0%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--lengths", nargs="+", type=int, default=[1024, 4096])
    parser.add_argument("--chips", nargs="+", choices=TOPOLOGIES, default=list(TOPOLOGIES))
    contenders = {
        "auto": jaxformer_step,
        "full": functools.partial(jaxformer_step, remat="full"),
        "loop": functools.partial(jaxformer_step, layers="loop"),
        "chunked": functools.partial(jaxformer_step, attention="chunked"),
        "plain": plain,
    }
    parser.add_argument("--models", nargs="+", choices=contenders, default=["auto"])
    arguments = parser.parse_args()
    if importlib.util.find_spec("libtpu") is None:
        print("without a TPU's compiler, which is not installed")
        return
    print("| model | traffic, GiB | most of it | temporaries, GiB | TFLOP | time, ms | share of "
          "arithmetic |\n|---|---|---|---|---|---|---|")  # fmt: skip
    for chip in arguments.chips:
        for size in arguments.sizes:
            for length in arguments.lengths:
                for name in arguments.models:
                    figures = contenders[name](size, length, ACCELERATORS[chip])
                    print(row(f"{chip}, {size}, T {length:,}, {name}", figures), flush=True)


if __name__ == "__main__":
    main()
