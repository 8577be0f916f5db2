"""Induction heads form abruptly in two layers of attention, and carry in-context learning.

python experiments/claims/induction_heads.py
"""

import dataclasses
from typing import Any

import numpy as np
import optax
from attention_only import NAMES, decoder, look_inside
from claim import Finding, Runs, judge, main
from matplotlib.figure import Figure

from jaxformer.config import LoopConfig
from jaxformer.models import Decoder
from jaxformer.sweeps import fit_sweep
from jaxformer.training import TrainingData, Trial, language_model_loss
from jaxformer.viz import AttentionMap, attention_page


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes; passages have from a quarter to half of the length."""

    vocab: int = 64
    length: int = 64
    width: int = 64
    heads: int = 4
    batch_size: int = 32
    steps: int = 2000
    learning_rate: float = 2e-3
    seeds: int = 3

    def decoder(self, num_layers: int) -> Decoder:
        """The decoder of this many layers; called again, the same object."""
        return decoder(self.vocab, self.length, num_layers, self.width, self.heads)


SIZES = {
    "toy": Size(16, 16, 8, 2, batch_size=4, steps=4, seeds=1),
    "cpu": Size(),
    "accelerator": Size(2**16, 8192, 768, 12, batch_size=64, steps=20_000, learning_rate=5e-4),
}


def runs(size: Size) -> list[Runs]:
    """What is trained; a plan counts feed-forward layers, which these models do not have."""
    models = (size.decoder(num_layers).config for num_layers in (1, 2))
    return [Runs(config, size.seeds, size.steps, size.batch_size, size.length) for config in models]


@dataclasses.dataclass(frozen=True)
class Passages:
    """Batches of repeated passages of one language; each is a function of seed and index."""

    size: Size
    seed: int

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        vocab, length, rows = self.size.vocab, self.size.length, self.size.batch_size
        follows = np.random.default_rng(0).permutation(vocab)  # the most frequent next token
        zipf = 1 / np.arange(1, vocab + 1)
        rng = np.random.default_rng([self.seed, index])
        ranks = rng.choice(vocab, (rows, length // 2), p=zipf / zipf.sum())
        passages = rng.integers(vocab, size=ranks.shape, dtype=np.int32)
        for place in range(1, length // 2):
            passages[:, place] = (follows[passages[:, place - 1]] + ranks[:, place]) % vocab
        periods = rng.integers(length // 4, length // 2 + 1, size=(rows, 1))
        tokens = np.take_along_axis(passages, np.arange(length + 1) % periods, axis=1)
        return {"tokens": tokens[:, :-1], "labels": tokens[:, 1:]}


def train(size: Size) -> tuple[np.ndarray, np.ndarray, AttentionMap, int]:
    """Steps; curves `[layers, seeds, names, evaluations]`; attention at the end; its best head."""
    passages = Passages(dataclasses.replace(size, batch_size=2 * size.batch_size), 10**6)[0]
    ids = np.tile(np.arange(size.vocab), (size.batch_size, 1))
    tokens = np.random.default_rng(0).permuted(ids, axis=1)[:, : size.length // 4]
    repeated = np.tile(tokens, 4)

    def make(num_layers: int) -> Trial:
        model, optimizer = size.decoder(num_layers), optax.adam(size.learning_rate)
        return Trial(language_model_loss(model), model.init_params, optimizer)

    def data(num_layers: int, seed: int) -> TrainingData:
        def scores(params: Any) -> dict[str, float]:
            attention_map, *_ = look_inside(size.decoder(num_layers), params, passages, repeated)
            return {name: float(value) for name, value in attention_map.items()}

        return TrainingData(Passages(size, seed), lambda: [passages], scores=scores)

    often = max(size.steps // 100, 1)
    loop = LoopConfig(steps=size.steps, log_every=10 * often, eval_every=often)
    runs = fit_sweep(make, {"num_layers": [1, 2], "seed": range(size.seeds)}, data, None, loop)
    records = [[record for record in run.result.records if "gain" in record] for run in runs]
    curves = [[[record[name] for record in curve] for name in NAMES] for curve in records]
    _, weights, best = look_inside(size.decoder(2), runs[-1].result.params, passages, repeated)
    words = [str(token) for token in repeated[0]]
    shown = AttentionMap("two layers", weights, words, words, [*words[1:], words[0]])
    steps = np.array([record["step"] for record in records[0]])
    return steps, np.reshape(curves, (2, size.seeds, len(NAMES), -1)), shown, int(best)


def rules_hold(
    steps: np.ndarray, one_layer: np.ndarray, two_layers: np.ndarray
) -> tuple[bool, bool, bool]:
    """Which parts of the rule are so in a seed; curves `[names, evaluations]` of 1 and 2 layers."""
    single, _, _, single_score, _ = one_layer[:, -1]
    gain, without, alone, score, _ = two_layers[:, -1]
    levels = single + np.array([0.25, 0.5, 0.75]) * (gain - single)
    first, middle, last = (steps[np.argmax(two_layers[0] >= level)] for level in levels)
    half_score = steps[np.argmax(two_layers[3] >= score / 2)]
    is_abrupt = last - first <= first / 2 and abs(half_score - middle) <= middle / 5
    change, heads = gain > 2 * abs(single) and is_abrupt, score > 0.5 and single_score <= 0.3
    return bool(change), bool(heads), bool(without < gain / 2 < alone)


def measure(size: Size) -> Finding:
    """Trains one and two layers, knocks induction heads out, and draws what happened."""
    steps, (one_layer, two_layers), shown, best = train(size)
    figure = Figure(figsize=(13, 4), layout="constrained")
    left, center, right = figure.subplots(1, 3)
    for color, by_seed in (("C0", one_layer), ("C1", two_layers)):
        left.plot(steps, by_seed[:, 0].T, color)
        center.plot(steps, by_seed[:, 3].T, color)
    left.plot(steps, two_layers[:, 1].T, "C1:")
    left.set(xlabel="training step", title="In-context gain (dotted: without induction heads)")
    center.set(xlabel="training step", title="Largest score of one layer (blue) and of layer 2")
    right.imshow(np.asarray(shown.weights)[-1, best])
    right.set(xlabel="key", ylabel="query", title="That head, on tokens repeated four times")
    ends = *one_layer[:, :, -1].T, *two_layers[:, :, -1].T
    ranges = [f"{values.min():.2f} to {values.max():.2f}" for values in ends]
    summary = (
        f"Gain of one layer {ranges[0]} nats, of two {ranges[5]}; without their induction heads "
        f"{ranges[6]}, without the other heads of layer 2 {ranges[7]}. Largest score of one layer "
        f"{ranges[3]}, of layer 2 {ranges[8]}. Induction heads: {ends[9].min():.0f} to "
        f"{ends[9].max():.0f} of {size.heads} heads of layer 2."
    )
    judged = [rules_hold(steps, *curves) for curves in zip(one_layer, two_layers, strict=True)]
    numbers = {
        "parts": judged,
        "steps": steps.tolist(),
        "one": one_layer.tolist(),
        "two": two_layers.tolist(),
    }
    pages = {"attention": attention_page([shown], title="Induction heads")}
    return Finding(judge(*map(all, zip(*judged, strict=True))), summary, figure, numbers, pages)


if __name__ == "__main__":
    main("induction_heads", SIZES, measure, runs)
