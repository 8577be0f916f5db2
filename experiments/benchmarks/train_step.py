"""Times one training step of a jaxformer decoder against others of its size.

They are a plain Flax Linen model and, where PyTorch is installed, nanoGPT's model under
`torch.compile`, in float32. All train on the same batch, each in a process of its own that waits
while another one steps, so a noisy machine is equally noisy to them. Prints ratios, tokens per
second, compile times, and the share of the machine's own matmul peak, measured in the same run.

Run: python experiments/benchmarks/train_step.py --size medium --dtype float32 --loop
"""

import argparse
import importlib.util
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from timing import ratio, timed

from jaxformer.config import AdamWConfig, ModelConfig, ScheduleConfig
from jaxformer.memory import keep_freed_memory
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


class Contender(NamedTuple):
    """A training step to time, its number of parameters, and a count of its FLOPs, 0 if unknown."""

    step: Callable[[], Any]
    parameters: int
    count_flops: Callable[[], float]


def make_batch(size: str) -> dict[str, np.ndarray]:
    _, _, _, length, batch_size, vocab = SIZES[size]
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, vocab, (batch_size, length + 1), dtype=np.int32)
    return {"tokens": tokens[:, :-1], "labels": tokens[:, 1:]}


def jax_contender(step: Callable[..., Any], state: Any, params: Any, size: str) -> Contender:
    """Contender of a compiled step from state and batch to the new state and metrics."""
    batch = make_batch(size)
    count = sum(leaf.size for leaf in jax.tree.leaves(params))

    def run() -> jax.Array:
        nonlocal state
        state, metrics = step(state, batch)
        return metrics["loss"]

    # After the first step, whose time includes that of tracing.
    return Contender(run, count, lambda: count_flops(step, state, batch))


def jaxformer_contender(options: argparse.Namespace) -> Contender:
    layers, heads, width, length, _, vocab = SIZES[options.size]
    config = ModelConfig(
        vocab_size=vocab, max_len=length, num_layers=layers, d_model=width, num_heads=heads,
        positions="learned", dtype=options.dtype,
        layer_execution="loop" if options.loop else "scan",
    )  # fmt: skip
    keep_freed_memory()  # as `jaxformer train` does
    if options.cpu_devices > 1:
        split_cpu(options.cpu_devices)
    runner = PmapRunner() if options.cpu_devices > 1 else SingleRunner()
    model = Decoder(config)
    params = model.init_params(jax.random.key(0))
    optimizer = make_optimizer(AdamWConfig(learning_rate=1e-4), ScheduleConfig(name="constant"))
    step = runner.compile_train(make_train_step(language_model_loss(model), optimizer, seed=0))
    state = runner.place(TrainState.create(params, optimizer))
    return jax_contender(step, state, params, options.size)


def plain_contender(options: argparse.Namespace) -> Contender:
    layers, heads, width, length, _, vocab = SIZES[options.size]
    model = PlainDecoder(layers, heads, width, length, vocab, jnp.dtype(options.dtype))
    params = model.init(jax.random.key(0), make_batch(options.size)["tokens"])["params"]
    adamw = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4, b2=0.95))
    state = params, adamw.init(params)
    return jax_contender(plain_step(model, adamw), state, params, options.size)


def torch_contender(options: argparse.Namespace) -> Contender:
    """NanoGPT's model, compiled."""
    import torch
    from nanogpt_torch import NanoGpt, Sizes, make_adamw

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    layers, heads, width, length, _, vocab = SIZES[options.size]
    model = NanoGpt(Sizes(layers, heads, width, length, vocab))
    compiled, optimizer = torch.compile(model), make_adamw(model, 1e-4, beta2=0.95)
    batch = make_batch(options.size)
    tokens, labels = (
        torch.from_numpy(batch[name].astype(np.int64)) for name in ("tokens", "labels")
    )

    def step() -> float:
        loss = compiled(tokens, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return Contender(step, sum(parameter.numel() for parameter in model.parameters()), lambda: 0.0)


CONTENDERS = {
    "jaxformer": jaxformer_contender,
    "plain": plain_contender,
    "torch": torch_contender,
}


def serve(name: str, options: argparse.Namespace, pipe: Connection) -> None:
    """Sends seconds of a contender's first step, size and FLOPs; then steps as often as told.

    An error is sent as a line, and ends the process.
    """
    try:
        contender = CONTENDERS[name](options)
        pipe.send((timed(contender.step), contender.parameters, contender.count_flops()))
        while pipe.recv():
            pipe.send(timed(contender.step))
    except Exception as error:
        pipe.send(f"{name}: {type(error).__name__}: {error}")
        raise


def receive(pipe: Connection) -> Any:
    """What a contender sends; an error of it ends the benchmark."""
    try:
        received = pipe.recv()
    except EOFError:
        raise SystemExit("a contender's process has ended") from None
    if isinstance(received, str):
        raise SystemExit(received)
    return received


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
    options = parser.parse_args()
    layers, heads, width, length, batch_size, _ = SIZES[options.size]
    names = ["jaxformer", "plain"]
    if not options.torch or options.dtype != "float32":
        print("without PyTorch: --no-torch, or not in float32")
    elif importlib.util.find_spec("torch") is None:
        print("without PyTorch, which is not installed")
    else:
        names.append("torch")
    # First calls compile, whatever ran before.
    os.environ |= {
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    }
    spawn = multiprocessing.get_context("spawn")
    pipes, started = {}, {}
    for name in names:
        pipes[name], other_end = spawn.Pipe()
        spawn.Process(target=serve, args=(name, options, other_end), daemon=True).start()
        other_end.close()  # so that the end of the process is an error here
        started[name] = receive(pipes[name])
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(options.repeats):
        for name, pipe in pipes.items():
            time.sleep(0.05)  # PyTorch's threads keep a core busy for a while after a step
            pipe.send(True)
            times[name].append(receive(pipe))
    for pipe in pipes.values():
        pipe.send(False)

    peak = matmul_peak(jnp.dtype(options.dtype), options.matmul_size)
    print(f"{options.size}: {layers} layers, d_model {width}, {heads} heads, T {length}, "
          f"batch {batch_size}, {options.dtype}, on {jax.devices()[0].device_kind}, jaxformer on "
          f"{options.cpu_devices} device(s)")  # fmt: skip
    print(f"matmul peak {peak / 1e9:.0f} GFLOP/s")
    for name, values in times.items():
        first_call, count, flops = started[name]
        best, median = min(values) * 1e3, statistics.median(values) * 1e3
        share = f"{flops / min(values) / peak:.1%} of peak, " if flops else ""
        print(f"{name:>10}: min {best:8.1f} ms, median {median:8.1f} ms, "
              f"{batch_size * length / min(values):9,.0f} tokens/s, {share}first call "
              f"{first_call:.1f} s, {count:,} parameters")  # fmt: skip
    for name in names[1:]:
        print(f"time {name} / jaxformer: {ratio(times[name], times['jaxformer'])}")


if __name__ == "__main__":
    main()
