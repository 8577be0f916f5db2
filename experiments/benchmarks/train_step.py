"""Times one training step of a jaxformer decoder against others of its size.

They are a plain Flax Linen model and, where PyTorch is installed, nanoGPT's model under
`torch.compile`, in float32. All train on the same batch in one process, in turn, so that a noisy
machine is equally noisy to them. Prints ratios, tokens per second, compile times, and the share of
the machine's own matmul peak, measured in the same run.

Run: python experiments/benchmarks/train_step.py --size medium --dtype float32 --loop
"""

import argparse
import functools
import importlib.util
import os
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from timing import interleaved, ratio, timed

from jaxformer.config import AdamWConfig, ModelConfig, ScheduleConfig
from jaxformer.models import Decoder
from jaxformer.planning import count_flops
from jaxformer.training import (
    PmapRunner,
    SingleRunner,
    TrainState,
    language_model_loss,
    make_optimizer,
    make_train_step,
    split_cpu,
)

SIZES = {  # layers, heads, d_model, max_len, batch, vocabulary
    "tiny": (2, 2, 64, 32, 4, 257),
    "small": (4, 4, 128, 64, 12, 257),
    "medium": (6, 6, 384, 256, 16, 257),
    "quickstart": (4, 4, 192, 128, 16, 2048),
}


class PlainBlock(nn.Module):
    """A pre-norm block in the style of the Flax documentation."""

    heads: int
    dtype: jnp.dtype
    attention_fn: Callable[..., jax.Array] = nn.dot_product_attention

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        """Maps [B, T, D] to [B, T, D]."""
        width = x.shape[-1]
        h = nn.LayerNorm(dtype=self.dtype)(x)
        attend = nn.MultiHeadDotProductAttention(
            self.heads, dtype=self.dtype, attention_fn=self.attention_fn
        )
        x = x + attend(h, mask=mask)
        h = nn.Dense(4 * width, dtype=self.dtype)(nn.LayerNorm(dtype=self.dtype)(x))
        return x + nn.Dense(width, dtype=self.dtype)(nn.gelu(h, approximate=False))


class PlainDecoder(nn.Module):
    """A GPT in plain Linen: learned positions, a loop over blocks, tied output."""

    layers: int
    heads: int
    width: int
    max_len: int
    vocab_size: int
    dtype: jnp.dtype
    remat: bool = False
    attention_fn: Callable[..., jax.Array] = nn.dot_product_attention

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Maps [B, T] to logits [B, T, V]."""
        embed = nn.Embed(self.vocab_size, self.width, dtype=self.dtype)
        positions = nn.Embed(self.max_len, self.width, dtype=self.dtype)
        x = embed(tokens) + positions(jnp.arange(tokens.shape[1]))[None]
        mask = nn.make_causal_mask(tokens)
        block = nn.remat(PlainBlock) if self.remat else PlainBlock
        for _ in range(self.layers):
            x = block(self.heads, self.dtype, self.attention_fn)(x, mask)
        x = nn.LayerNorm(dtype=self.dtype)(x)
        return embed.attend(x).astype(jnp.float32)


def plain_step(model: PlainDecoder, optimizer: optax.GradientTransformation) -> Callable[..., Any]:
    """A plain training step for the plain model."""

    def loss(params: Any, batch: Any) -> jax.Array:
        logits = model.apply({"params": params}, batch["tokens"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"])
        return losses.mean()

    def step(state: Any, batch: Any) -> Any:
        params, opt_state = state
        value, grads = jax.value_and_grad(loss)(params, batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), {"loss": value}

    return jax.jit(step, donate_argnums=0)


def torch_step(batch: Mapping[str, np.ndarray], *sizes: int) -> Callable[[], Any]:
    """A training step of nanoGPT's model, compiled; sizes as of its `Sizes`."""
    import torch
    from nanogpt_torch import NanoGpt, Sizes, make_adamw

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = NanoGpt(Sizes(*sizes))
    compiled, optimizer = torch.compile(model), make_adamw(model, 1e-4, beta2=0.95)
    tokens, labels = (
        torch.from_numpy(batch[name].astype(np.int64)) for name in ("tokens", "labels")
    )

    def step() -> float:
        loss = compiled(tokens, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss)

    return step


def matmul_peak(dtype: jnp.dtype, size: int, repeats: int = 8) -> float:
    """FLOP/s of the fastest of several square products."""
    a = jnp.ones((size, size), dtype)
    product = jax.jit(jnp.matmul)
    jax.block_until_ready(product(a, a))
    return 2 * size**3 / min(timed(lambda: product(a, a)) for _ in range(repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--loop", action="store_true", help="loop over layers instead of scanning")
    parser.add_argument("--cpu-devices", type=int, default=1, help="for jaxformer, under pmap")
    parser.add_argument("--torch", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--matmul-size", type=int, default=2048, help="of the peak's products")
    arguments = parser.parse_args()
    if arguments.cpu_devices > 1:
        split_cpu(arguments.cpu_devices)
    layers, heads, width, length, batch_size, vocab = SIZES[arguments.size]
    dtype = jnp.dtype(arguments.dtype)

    config = ModelConfig(
        vocab_size=vocab, max_len=length, num_layers=layers, d_model=width, num_heads=heads,
        positions="learned", dtype=arguments.dtype,
        layer_execution="loop" if arguments.loop else "scan",
    )  # fmt: skip
    model = Decoder(config)
    plain = PlainDecoder(layers, heads, width, length, vocab, dtype)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, vocab, (batch_size, length + 1), dtype=np.int32)
    batch = {"tokens": tokens[:, :-1], "labels": tokens[:, 1:]}
    optimizer = make_optimizer(AdamWConfig(learning_rate=1e-4), ScheduleConfig(name="constant"))
    adamw = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4, b2=0.95))

    runner = SingleRunner() if arguments.cpu_devices == 1 else PmapRunner()
    params = model.init(jax.random.key(0), batch["tokens"])["params"]
    plain_params = plain.init(jax.random.key(0), batch["tokens"])["params"]
    count, plain_count = (
        sum(leaf.size for leaf in jax.tree.leaves(tree)) for tree in (params, plain_params)
    )
    states = {
        "jaxformer": runner.place(TrainState.create(params, optimizer)),
        "plain": (plain_params, adamw.init(plain_params)),
    }
    steps = {
        "jaxformer": runner.compile_train(
            make_train_step(language_model_loss(model), optimizer, seed=0)
        ),
        "plain": plain_step(plain, adamw),
    }

    def run(name: str) -> Any:
        states[name], metrics = steps[name](states[name], batch)
        return metrics["loss"]

    programs = {name: functools.partial(run, name) for name in steps}
    if not arguments.torch or arguments.dtype != "float32":
        print("without PyTorch: --no-torch, or not in float32")
    elif arguments.cpu_devices > 1:
        # Side by side in one process, PyTorch's step took 17 times as long as alone.
        print("without PyTorch, whose threads and those of several devices are in each other's way")
    elif importlib.util.find_spec("torch") is None:
        print("without PyTorch, which is not installed")
    else:
        programs["torch"] = torch_step(batch, layers, heads, width, length, vocab)
    compile_times = {name: timed(program) for name, program in programs.items()}
    times = interleaved(programs, arguments.repeats, warm_up=0)

    peak = matmul_peak(dtype, arguments.matmul_size)
    flops = {name: count_flops(step, states[name], batch).total for name, step in steps.items()}
    print(f"{arguments.size}: {layers} layers, d_model {width}, {heads} heads, T {length}, "
          f"batch {batch_size}, {arguments.dtype}, on {runner.num_devices} device(s) of kind "
          f"{jax.devices()[0].device_kind}")  # fmt: skip
    print(f"parameters: jaxformer {count:,}, plain Linen {plain_count:,}")
    print(f"matmul peak {peak / 1e9:.0f} GFLOP/s")
    for name, values in times.items():
        best, median = min(values) * 1e3, statistics.median(values) * 1e3
        speed, compiling = batch_size * length / min(values), compile_times[name]
        share = f"{flops[name] / min(values) / peak:.1%} of peak, " if name in flops else ""
        print(f"{name:>10}: min {best:8.1f} ms, median {median:8.1f} ms, {speed:9,.0f} tokens/s, "
              f"{share}first call {compiling:.1f} s")  # fmt: skip
    for name in list(times)[1:]:
        print(f"time {name} / jaxformer: {ratio(times[name], times['jaxformer'])}")


if __name__ == "__main__":
    main()
