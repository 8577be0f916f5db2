"""A mixture of experts on a TPU, as its compiler plans it: FLOPs, memory traffic and temporaries.

One layer of 8 experts of 1,024 x 3,584, gated, 2 for each token, in bfloat16, with its gradient,
for 8,192 tokens on a v5e. "all" computes every expert for every token, as jaxformer did before it
sorted tokens; "blocks" is what it does on GPUs and CPUs. FLOPs are those that jaxformer counts,
which counts blocks in place of grouped products, and those that XLA counts, which counts the body
of a loop once. No TPU is needed:

    pip install -e ".[tpu]"
    python experiments/benchmarks/tpu_experts.py
"""

import functools
import importlib.util
import os

# Compiling for a TPU needs none: JAX shall not look for one.
os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, SingleDeviceSharding
from tpu_traffic import traffic_of

from jaxformer.flops import count_flops
from jaxformer.functional import ExpertsParams, mixture_of_experts
from jaxformer.functional.experts import grouped
from jaxformer.functional.feed_forward import GatedFeedForwardParams, gated_feed_forward
from jaxformer.functional.platforms import compiling_for
from jaxformer.planning import ACCELERATORS
from jaxformer.planning.compiler import topology_devices

ONE_DEVICE = AbstractMesh((1,), ("device",), axis_types=(AxisType.Auto,))
TOKENS, WIDTH, HIDDEN, EXPERTS, CHOSEN = 8192, 1024, 3584, 8, 2


def all_experts(params, x):
    """Every expert for every token, one after the other."""
    logits = x.astype(jnp.float32) @ params.router_kernel.astype(jnp.float32)
    largest, chosen = jax.lax.top_k(logits, CHOSEN)
    weights = jax.nn.softmax(largest)

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def contribution(x, index, kernels):
        weight = jnp.where(chosen == index, weights, 0).sum(axis=-1, keepdims=True)
        return weight * gated_feed_forward(GatedFeedForwardParams(*kernels), x)

    def add(total, expert):
        return total + contribution(x, *expert), None

    kernels = params.gate_kernel, params.up_kernel, params.down_kernel
    total, _ = jax.lax.scan(add, jnp.zeros(x.shape, jnp.float32), (jnp.arange(EXPERTS), kernels))
    return total.astype(x.dtype)


def mixture(params, x, **options):
    return mixture_of_experts(params, x, num_experts_per_token=CHOSEN, **options).output


def in_blocks(params, x):
    ragged, grouped.by_platform = grouped.by_platform, lambda programs: programs["rocm"]()
    try:
        return mixture(params, x)
    finally:
        grouped.by_platform = ragged


VARIANTS = {
    "all": all_experts,
    "blocks": in_blocks,
    "ragged": mixture,
    "capacity 1.0": functools.partial(mixture, capacity_factor=1.0),
    "capacity 1.25": functools.partial(mixture, capacity_factor=1.25),
}


def main():
    if importlib.util.find_spec("libtpu") is None:
        print("without a TPU's compiler, which is not installed")
        return
    place = SingleDeviceSharding(topology_devices(ACCELERATORS["v5e"], "2x2")[0])
    shapes = [(WIDTH, EXPERTS), (EXPERTS, WIDTH, HIDDEN), (EXPERTS, HIDDEN, WIDTH)]
    shapes = [*shapes, shapes[1], (TOKENS, WIDTH)]
    *kernels, x = (jax.ShapeDtypeStruct(shape, "bfloat16", sharding=place) for shape in shapes)
    for name, function in VARIANTS.items():

        def loss(params, x, function=function):
            return jnp.square(function(params, x).astype(jnp.float32)).sum()

        step = jax.value_and_grad(loss, argnums=(0, 1))
        with compiling_for("tpu"), jax.sharding.use_abstract_mesh(ONE_DEVICE):
            counted = count_flops(step, ExpertsParams(*kernels), x)
            lowered = (
                jax.jit(step).trace(ExpertsParams(*kernels), x).lower(lowering_platforms=("tpu",))
            )
        compiled = lowered.compile()
        traffic = sum(traffic_of(compiled.as_text()).values())
        print(
            f"{name:>14}: TFLOPs {counted / 1e12:.2f} (XLA "
            f"{compiled.cost_analysis()['flops'] / 1e12:.2f}), moves {traffic / 1e9:.2f} GB, "
            f"temporary {compiled.memory_analysis().temp_size_in_bytes / 2**20:.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
