"""Start from pretrained word vectors: read a file, put its rows into the parameters, freeze them.

    python examples/word_vectors.py

The file is in GloVe's format, a word and its numbers on each line; one of word2vec has a line of
two sizes before. The vectors are narrower than the model, so a learned projection follows them.
Words without a vector keep what was drawn. Only what is not frozen is trained.
"""

import pathlib

import jax
import numpy as np
import optax

from jaxformer.config import LoopConfig, ModelConfig
from jaxformer.models import Decoder
from jaxformer.text import train_word
from jaxformer.training import TrainingData, Trial, fit, language_model_loss

TEXT = "the cat sat on the mat and the dog sat on the log"
FILE = pathlib.Path("vectors.txt")
FILE.write_text("cat 1 0.5 0 0\ndog 1 0.4 0 0.1\nmat 0 0 1 0.5\nlog 0 0 1 0.6\nsea 9 9 9 9\n")


def read_vectors(path, words):
    """Ids of the words that the file has, int [N], and their vectors, float32 [N, width]."""
    rows = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    vectors = {words[word]: np.float32(numbers) for word, *numbers in rows if word in words}
    return np.array([*vectors]), np.stack([*vectors.values()])


tokenizer = train_word([TEXT])
ids, vectors = read_vectors(FILE, tokenizer.words)
config = ModelConfig(
    vocab_size=tokenizer.vocab_size, max_len=12, num_layers=1, d_model=16, num_heads=2,
    embedding_dim=vectors.shape[1], tied_embeddings=False,
)  # fmt: skip
model = Decoder(config)


def draw(rng):
    """Parameters with the vectors in the embedding table."""
    params = model.init_params(rng)
    table = params["embedding"]["embedding"].at[ids].set(vectors)
    return {**params, "embedding": {**params["embedding"], "embedding": table}}


def label(path, _):
    return "frozen" if jax.tree_util.keystr(path).endswith("['embedding']") else "trained"


optimizer = optax.multi_transform(
    {"frozen": optax.set_to_zero(), "trained": optax.adam(1e-2)},
    lambda params: jax.tree_util.tree_map_with_path(label, params),
)
tokens = np.tile(tokenizer.encode(TEXT), (jax.device_count(), 1))
batch = {"tokens": tokens[:, :-1], "labels": tokens[:, 1:]}
trial = Trial(language_model_loss(model), draw, optimizer)
result = fit(trial, TrainingData([batch] * 60), None, LoopConfig(steps=60))
same = (result.params["embedding"]["embedding"][ids] == vectors).all()
logits = model.apply({"params": result.params}, batch["tokens"]).logits
right = (logits.argmax(-1) == batch["labels"]).mean()
print(f"{len(ids)} of {len(tokenizer.words)} words keep their vectors: {same}; {right:.0%} right")
