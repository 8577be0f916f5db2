"""What a trained run can tell you about texts: log-likelihoods, hidden states, losses.

    python examples/scores_and_embeddings.py

A small byte-level model of one of Python's own packages is trained in runs/scores, or reused if it
already exists. It is also evaluated on another package. `open_run` opens any run folder, such as
those of `jaxformer train`.
"""

import inspect
import json
import pathlib
import tomllib

import numpy as np

from jaxformer import config as c
from jaxformer.runs import open_run, train_run

FOLDER, STEPS, LENGTH = "runs/scores", 120, 64
known, unknown = (str(pathlib.Path(inspect.getfile(m)).with_name("*.py")) for m in (json, tomllib))

config = c.ExperimentConfig(
    out=FOLDER,
    model=c.ModelConfig(max_len=LENGTH, num_layers=2, d_model=64, num_heads=4),
    data=c.DataConfig(source="files", paths=(known,)),
    tokenizer=c.TokenizerConfig(kind="byte"),
    optimizer=c.AdamWConfig(learning_rate=1e-2),
    training=c.TrainingConfig(steps=STEPS, batch_size=16, log_every=50, eval_every=120),
)
train_run(config)
model = open_run(FOLDER)
validation, unseen = model.evaluate(), model.evaluate([unknown])
print(f"validation data: {validation}\nanother package: {unseen}")

texts = ["        raise TypeError(", ")rorrEepyT esiar        "]
scores = model.log_likelihood(texts)
for text, score in zip(texts, scores, strict=True):
    print(f"{score.log_likelihood:.2f} nats for {score.num_tokens} tokens of {text!r}")
whole, start = model.log_likelihood(["return self", "return"])
(behind,) = model.log_likelihood([" self"], prompts=["return"])
gap = abs(whole.log_likelihood - start.log_likelihood - behind.log_likelihood)
print(f"{behind.log_likelihood:.2f} nats for self after return, the difference to within {gap:.0e}")

names = ["self.doc", "self.msg", "12345678"]
means = np.stack([states.mean(axis=0) for states in model.hidden_states(names)])  # [3, D]
means /= np.linalg.norm(means, axis=1, keepdims=True)
near, far = means[1:] @ means[0]
print(f"cosine of {names[0]} and {names[1]}: {near:.3f}; of {names[0]} and {names[2]}: {far:.3f}")
if validation.loss > unseen.loss or scores[0] < scores[1] or gap > 1e-3 or near < far:
    raise SystemExit("the training text should be likelier, and similar names closer")
