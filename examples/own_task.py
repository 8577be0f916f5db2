"""A model and a data source of your own: predict a tag for every word (token tagging).

    python examples/own_task.py

A text model has the loss of a model and what it can do, a task the data that it is trained on. This
one is trained (in runs/own_task), evaluated, resumed and opened by the same functions as the
built-in tasks.
"""

import dataclasses

import jax
import numpy as np

from jaxformer import config as c
from jaxformer.models import SequenceClassifier
from jaxformer.runs import Split, TableTask, TextModel, open_run, train_run
from jaxformer.text import Corpus, Labelled
from jaxformer.training import classification_loss

STEPS, TAGS = 100, ["DET", "NOUN", "VERB"]
D, N, V = "the a every".split(), "dog walk run cat".split(), "sleeps walk run eats".split()


class Tagger(TextModel):
    kind, unit = "a tagger, which predicts a tag for every word", "word"

    @property
    def module(self):
        model = dataclasses.replace(self.config.model, num_classes=len(TAGS), pooling="none")
        return SequenceClassifier(model)

    def loss(self, label_smoothing):
        return classification_loss(self.module, label_smoothing=label_smoothing)

    def batch_shapes(self, rows):  # for plans: a batch has lengths, too
        return super().batch_shapes(rows) | {"lengths": jax.ShapeDtypeStruct((rows,), np.int32)}

    def sample(self, prompt, seed=0):
        tokens = self.encode(prompt)[None]
        best = self.module.apply({"params": self.params}, tokens).logits.argmax(-1)
        return " ".join(TAGS[i] for i in best[0])


class Tagging(TableTask):
    table, text_model = Labelled, Tagger

    @classmethod
    def read(cls, config):
        rows = [(f"{d} {n} {v}", "DET NOUN VERB") for d in D for n in N for v in V]
        rows += [(f"{n} {v} {d} cat", "NOUN VERB DET NOUN") for d in D for n in N for v in V]
        corpus = Corpus.of(Labelled(*zip(*rows, strict=True)), 0.2)
        return Split(corpus, corpus.validation)

    def encode_rows(self, rows):
        tags = [np.int32([TAGS.index(tag) for tag in row.split()]) for row in rows.labels]
        both = zip(self.tokenizer.encode_documents(rows.texts), tags, strict=True)
        return [dict(tokens=x, lengths=np.int32(x.size), labels=y) for x, y in both]


config = c.ExperimentConfig(
    model=c.ModelConfig(architecture="encoder", max_len=8, num_layers=1, d_model=32, num_heads=2),
    data=c.DataConfig(source="labelled"), tokenizer=c.TokenizerConfig(kind="word"),
    optimizer=c.AdamWConfig(learning_rate=1e-2), out="runs/own_task",
    training=c.TrainingConfig(steps=STEPS, batch_tokens=256, log_every=20, eval_every=20),
)  # fmt: skip
train_run(config, task=Tagging)
model = open_run("runs/own_task", task=Tagging)
print(f"step {model.step}: {model.evaluate()}; every run walk: {model.sample('every run walk')}")
