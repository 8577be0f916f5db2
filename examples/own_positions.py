"""Positions of your own: KERPLE's learned bias, which falls with the logarithm of the distance.

    python examples/own_positions.py

`Positions` has three methods; a scheme overrides those that it needs: `encoding` (added to the
embeddings), `rotation` (of queries and keys) and `bias` (on the scores). The model is trained on
short texts, evaluated on longer ones, and compared with rotary positions. Chi et al., "KERPLE",
2022, equation 4.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.models import Decoder
from jaxformer.modules import Positions
from jaxformer.training import TrainState, language_model_loss, make_eval_step, make_train_step

STEPS, ROWS, SHORT, LONG, HEADS = 150, 16, 32, 256, 4


class LogDistance(Positions):
    """-r1 * log(1 + r2 * distance); each head has its own r1 and r2, learned and positive."""

    num_heads: int

    def setup(self):
        self.r = self.param("r", nn.initializers.ones, (2, self.num_heads, 1, 1))

    def bias(self, num_queries, num_keys, query_offset=0):
        offset = jnp.reshape(query_offset, (-1, 1, 1, 1))  # one for all rows, or one for each
        query = jnp.arange(num_queries)[:, None] + offset
        r1, r2 = jax.nn.softplus(self.r)
        return -r1 * jnp.log1p(r2 * jnp.abs(query - jnp.arange(num_keys)))


def windows(length, rows, seed):
    """Rows of bytes of one of Python's own modules and, for each byte, the next one."""
    text = np.frombuffer(inspect.getsource(inspect).encode(), np.uint8).astype(np.int32)
    starts = np.random.default_rng(seed).integers(0, text.size - length, (rows, 1))
    rows = text[starts + np.arange(length + 1)]
    return {"tokens": rows[:, :-1], "labels": rows[:, 1:]}


config = ModelConfig(vocab_size=128, max_len=LONG, num_layers=2, d_model=64, num_heads=HEADS)
lost = []
for name, scheme in [("log-distance", LogDistance(num_heads=HEADS)), ("rotary", None)]:
    model, optimizer = Decoder(config, position_scheme=scheme), optax.adam(1e-2)
    params = model.init_params(jax.random.key(0))
    state, loss = TrainState.create(params, optimizer), language_model_loss(model)
    step, evaluate = (
        jax.jit(make_train_step(loss, optimizer, seed=0)),
        jax.jit(make_eval_step(loss)),
    )
    for number in range(STEPS):
        state, metrics = step(state, windows(SHORT, ROWS, number))
    sums = [evaluate(state.params, windows(length, 32, seed=STEPS)) for length in (SHORT, LONG)]
    short, long = (float(total / count) for total, count in sums)
    lost.append(long - short)
    print(f"{name}: {short:.3f} nats per byte at {SHORT} bytes, {long:.3f} at {LONG}")
if lost[0] > min(0.2, lost[1] / 2):  # depends on the text: -0.01 to 0.15; rotary 0.25 to 0.39
    raise SystemExit("a bias by the logarithm of the distance should hold at longer lengths")
