"""A training loop of your own: a model, NumPy batches, an optax optimizer, and `jax.jit` or `pmap`.

    python examples/own_loop.py

A byte-level decoder learns the text of this file. The same step is compiled by `jax.jit` for one
device and by `jax.pmap` for all devices (on a CPU, two virtual ones). The losses are the same.
"""

import contextlib
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxformer.config import ModelConfig
from jaxformer.models import Decoder

STEPS, ROWS, LENGTH, BYTES = 60, 16, 32, 128
with contextlib.suppress(RuntimeError):  # devices exist already
    jax.config.update("jax_num_cpu_devices", 2)

model = Decoder(
    ModelConfig(vocab_size=BYTES, max_len=LENGTH, num_layers=1, d_model=64, num_heads=4)
)
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))


def batches():
    """Rows of bytes of this file and, for each byte, the next one; any iterator will do."""
    text, rng = (
        np.frombuffer(pathlib.Path(__file__).read_bytes(), np.uint8),
        np.random.default_rng(0),
    )
    while True:
        starts = rng.integers(0, text.size - LENGTH, ROWS)
        windows = text[starts[:, None] + np.arange(LENGTH + 1)].astype(np.int32)
        yield windows[:, :-1], windows[:, 1:]


def loss_sum(params, tokens, labels):
    logits = model.apply({"params": params}, tokens).logits
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).sum()


def train_step(params, opt_state, tokens, labels, axis_name=None):
    """Sums loss and gradients over the rows of a device, then over all devices; then updates."""
    sums = *jax.value_and_grad(loss_sum)(params, tokens, labels), jnp.float32(labels.size)
    loss, grads, count = sums if axis_name is None else jax.lax.psum(sums, axis_name)
    grads = jax.tree.map(lambda grad: grad / count, grads)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss / count


def train(step, shape):
    params, opt_state, losses = start, jax.jit(optimizer.init)(start), []
    for _, arrays in zip(range(STEPS), batches(), strict=False):
        params, opt_state, loss = step(params, opt_state, *(x.reshape(shape) for x in arrays))
        losses.append(float(loss))
    return np.array(losses)


start = model.init_params(jax.random.key(0))
DEVICES = jax.device_count()
on_all = jax.pmap(
    functools.partial(train_step, axis_name="devices"), "devices",
    in_axes=(None, None, 0, 0), out_axes=None,
)  # fmt: skip
single = train(jax.jit(train_step), (ROWS, LENGTH))
parallel = train(on_all, (DEVICES, ROWS // DEVICES, LENGTH))
print(f"jit, 1 device:   loss {single[0]:.4f} -> {single[-1]:.4f} nats per byte")
print(f"pmap, {DEVICES} devices: loss {parallel[0]:.4f} -> {parallel[-1]:.4f}")
if single[-1] > 3 or np.abs(single - parallel).max() > 1e-3:
    raise SystemExit(f"the losses should fall, and be the same: {single} {parallel}")
