"""A model of vectors instead of tokens: in-context regression, by a Transformer on `[B, T, D]`.

    python examples/vectors.py

Each row is a task of its own: pairs (x, y) with y = x * w, followed by a single x, whose y the
model must predict. One projection maps the pairs to the model's width; another one maps the output
to y.
"""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.models import Transformer

STEPS, ROWS, PAIRS, WIDTH = 300, 64, 8, 48


class InContextRegression(nn.Module):
    """Predicts, from pairs `[B, T, 2]`, the y `[B]` of the last pair; in the input, this y is 0."""

    config: ModelConfig

    @nn.compact
    def __call__(self, pairs):
        vectors = nn.Dense(self.config.d_model, name="read_in")(pairs)  # [B, T, D]
        hidden = Transformer(self.config, name="trunk")(vectors).hidden
        return nn.Dense(1, name="read_out")(hidden[:, -1])[:, 0]


def draw(key):
    """Rows of pairs, each row with its own slope, and the y that the model must predict."""
    x_key, slope_key = jax.random.split(key)
    x = jax.random.normal(x_key, (ROWS, PAIRS))
    y = x * jax.random.normal(slope_key, (ROWS, 1))
    pairs = jnp.stack([x, y], axis=-1)
    return pairs.at[:, -1, 1].set(0), y[:, -1]


config = ModelConfig(max_len=PAIRS, num_layers=2, d_model=WIDTH, num_heads=4, positions="learned")
model = InContextRegression(config)
optimizer = optax.adam(3e-3)


@jax.jit
def step(params, opt_state, key):
    def loss(params):
        pairs, expected = draw(key)
        return jnp.square(model.apply({"params": params}, pairs) - expected).mean()

    value, grads = jax.value_and_grad(loss)(params)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, value


variables = jax.jit(model.init)(jax.random.key(0), draw(jax.random.key(0))[0])
params = nn.unbox(variables)["params"]
opt_state, losses = optimizer.init(params), []
for key in jax.random.split(jax.random.key(1), STEPS):
    params, opt_state, loss = step(params, opt_state, key)
    losses.append(float(loss))
first, last = losses[0], sum(losses[-20:]) / 20
print(f"squared error: {first:.3f} -> {last:.3f}; the variance of y is 1")
if last > 0.3:
    raise SystemExit("the model should have learned to fit a line in its context")
