"""A mask of your own: a prefix language model, which attends to its prompt in both directions.

    python examples/own_mask.py

The model answers a prompt of 3 to 7 symbols with its reversal. The mask is that of Raffel et al.
(T5), 2020, figure 4. `causal=False` turns off the model's causal mask, and the mask of this example
restores it for the answer. It is a rule, so no `[T, S]` array is made. Generation needs no mask:
with `causal=False`, the prompt attends to itself in both directions, and each token after it finds
only earlier ones in the cache.
"""

import jax
import numpy as np
import optax

from jaxformer.config import ModelConfig, SamplingConfig
from jaxformer.functional import Prefix
from jaxformer.inference import generate
from jaxformer.models import Decoder
from jaxformer.training import TrainState, language_model_loss, make_train_step

STEPS, ROWS, SYMBOLS, SHORTEST, LONGEST, END = 500, 64, 8, 3, 7, 8
LENGTH, IGNORE = 2 * LONGEST + 1, -1

config = ModelConfig(vocab_size=END + 1, max_len=LENGTH + 1, num_layers=2, d_model=64, num_heads=4)
model = Decoder(config, causal=False)
optimizer = optax.adam(5e-3, b2=0.95)


def make_batch(rng):
    """Prompt, END, its reversal, END; only the reversal and its END are labels."""
    tokens = np.zeros((ROWS, LENGTH + 1), np.int32)
    labels = np.full((ROWS, LENGTH), IGNORE, np.int32)
    sizes = rng.integers(SHORTEST, LONGEST + 1, ROWS)
    for row, size in enumerate(sizes):
        prompt = rng.integers(0, SYMBOLS, size)
        tokens[row, : 2 * size + 2] = [*prompt, END, *prompt[::-1], END]
        labels[row, size : 2 * size + 1] = tokens[row, size + 1 : 2 * size + 2]
    return {"tokens": tokens[:, :-1], "labels": labels, "mask": Prefix(sizes + 1)}


def accuracy(model, params):
    """Share of unseen prompts whose greedy continuation is their reversal, symbol by symbol."""
    rng = np.random.default_rng(1)
    prompts = [[*rng.integers(0, SYMBOLS, n), END] for n in rng.integers(SHORTEST, LONGEST + 1, 64)]
    written = generate(
        model, params, prompts, max_new_tokens=LONGEST + 1, rng=jax.random.key(0),
        sampling=SamplingConfig(temperature=0), stop_tokens=(END,),
    )  # fmt: skip
    pairs = zip(prompts, written, strict=True)
    return np.mean([answer.tolist() == [*prompt[-2::-1], END] for prompt, answer in pairs])


rng = np.random.default_rng(0)
params = model.init_params(jax.random.key(0))
state = TrainState.create(params, optimizer)
train_step = jax.jit(make_train_step(language_model_loss(model), optimizer, seed=0))
for step in range(STEPS):
    state, metrics = train_step(state, make_batch(rng))
    if step % 50 == 0 or step == STEPS - 1:
        print(f"step {step}: loss {metrics['loss']:.4f}")
right, causally = (accuracy(m, state.params) for m in (model, Decoder(config)))
print(f"correct: {right:.0%}; with causal attention in the prompt, too: {causally:.0%}")
if right < 0.8 or causally > 0.5:
    raise SystemExit("generation should attend to the prompt as training did, and be correct")
