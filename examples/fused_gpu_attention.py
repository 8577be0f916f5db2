"""A fused kernel for packed documents on GPUs: that of tokamax, as a model's attention function.

    pip install tokamax
    python examples/fused_gpu_attention.py

On an NVIDIA GPU jaxformer takes cuDNN's kernel, which knows no documents. tokamax takes them as a
mask, and then its Triton or Mosaic kernel on GPUs (elsewhere XLA). It promises less than
jaxformer's functions do for a query that sees nothing, and for a NaN that nobody sees.
https://github.com/openxla/tokamax
"""

import functools
import time

import jax
import numpy as np
import optax
import tokamax

from jaxformer.config import ModelConfig, RotaryConfig
from jaxformer.functional import attention_mask, dot_product_attention
from jaxformer.models import Decoder
from jaxformer.testing import assert_attention_contract
from jaxformer.training import TrainState, language_model_loss, make_train_step

ON_GPU = jax.default_backend() == "gpu"
STEPS, ROWS, LENGTH = (100, 8, 2048) if ON_GPU else (30, 8, 32)


def fused_attention(query, key, value, mask=None, *, is_causal=False, **structure):
    if structure:  # documents, windows, lengths, the place of queries behind a cache
        mask = attention_mask(query, key, mask, is_causal=is_causal, **structure)
        is_causal = False
    kernels = ("mosaic", "triton") if ON_GPU else ("xla",)
    attend = functools.partial(tokamax.dot_product_attention, implementation=kernels)
    return attend(query, key, value, mask=mask, is_causal=is_causal)


config = ModelConfig(
    vocab_size=64, max_len=LENGTH, num_layers=2, d_model=128, num_heads=2, positions=RotaryConfig(),
    dtype="bfloat16" if ON_GPU else "float32",
)  # fmt: skip
cut = LENGTH // 3  # two documents in each row, which count by ones and by threes
place = np.arange(LENGTH)
tokens = (np.arange(ROWS)[:, None] + np.where(place < cut, place, 3 * place)) % config.vocab_size
segments, positions = 1 + (place >= cut), np.where(place < cut, place, place - cut)
packing = {"segment_ids": segments + 0 * tokens, "positions": positions + 0 * tokens}
labels = np.where(np.isin(place, [cut - 1, LENGTH - 1]), -1, np.roll(tokens, -1, axis=1))

if not ON_GPU:
    assert_attention_contract(fused_attention, without=("nan_padding", "empty_rows"))
for name, attend in {"tokamax": fused_attention, "jaxformer": dot_product_attention}.items():
    model, optimizer = Decoder(config, attention_fn=attend), optax.adam(1e-2)
    params = model.init_params(jax.random.key(0))
    state = TrainState.create(params, optimizer)
    step = jax.jit(make_train_step(language_model_loss(model), optimizer, seed=0))
    for number in range(STEPS):
        if number == 1:  # the first step compiles
            began = jax.block_until_ready(state) and time.perf_counter()
        state, metrics = step(state, {"tokens": tokens, "labels": labels, **packing})
    loss = float(metrics["loss"])
    ms = 1e3 * (time.perf_counter() - began) / (STEPS - 1)
    print(f"{name:>9}: loss {loss:.3f} after {STEPS} steps of {ms:.1f} ms")
    if loss > 1:
        raise SystemExit("the loss should fall")
