"""Train with data, loss and optimizer of your own: checkpoints, exact resume and metrics included.

    python examples/fit_own_data.py

A decoder learns to count in steps of 1 to 3, modulo 20. The run folder is runs/fit_own_data. If you
run the script again, training continues where it stopped. You may increase `STEPS` in between.
"""

import jax
import numpy as np
import optax

from jaxformer.config import LoopConfig, ModelConfig
from jaxformer.models import Decoder
from jaxformer.training import TrainingData, Trial, fit

FOLDER, STEPS, ROWS, LENGTH, NUMBERS = "runs/fit_own_data", 60, 32, 12, 20

model = Decoder(
    ModelConfig(
        vocab_size=NUMBERS, max_len=LENGTH, num_layers=1, d_model=32, num_heads=2,
        positions="rotary",
    )
)  # fmt: skip


class Counting:
    """Batches indexed by step, so that a resumed run gets the same batch again."""

    def __getitem__(self, step):
        rng = np.random.default_rng(step)
        start, by = rng.integers(0, NUMBERS, (ROWS, 1)), rng.integers(1, 4, (ROWS, 1))
        numbers = (start + by * np.arange(LENGTH + 1)) % NUMBERS
        return {"tokens": numbers[:, :-1], "labels": numbers[:, 1:]}


def loss(params, batch, dropout_rng):
    """Two sums over the batch: the loss, and the number of labels, by which it is divided."""
    logits = model.apply({"params": params}, batch["tokens"]).logits[:, 1:]  # the step is known
    each = optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"][:, 1:])
    return each.sum(), each.size


data = TrainingData(Counting(), validation=lambda: [Counting()[10**6]])
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.lion(3e-3))
result = fit(
    Trial(loss, model.init_params, optimizer),
    data,
    FOLDER,
    LoopConfig(steps=STEPS, log_every=20, eval_every=20, checkpoint_every=20),
)
logits = model.apply({"params": result.params}, np.array([[4, 7, 10, 13]])).logits
print(f"step {result.step}, on {jax.device_count()} devices: after 4, 7, 10, 13 comes", end=" ")
print(int(logits[0, -1].argmax()))
