"""A Transformer learns to add from fewer examples if it writes the last digit of a sum first.

python experiments/claims/arithmetic.py
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import optax
from claim import Finding, Runs, judge, main
from matplotlib.figure import Figure

from jaxformer.config import LoopConfig, ModelConfig
from jaxformer.models import Decoder
from jaxformer.sweeps import fit_sweep
from jaxformer.text import Batches
from jaxformer.training import TrainingData, Trial, language_model_loss


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes; each number of examples is twice the one before."""

    digits: int = 3
    examples: tuple[int, ...] = (500, 1000, 2000, 4000)
    num_layers: int = 2
    width: int = 48
    heads: int = 4
    batch_size: int = 64
    steps: int = 1200
    learning_rate: float = 3e-3
    dropout_rate: float = 0.0
    tests: int = 1000
    seeds: int = 3


SIZES = {
    "toy": Size(1, (20, 40), 1, 8, 2, batch_size=4, steps=10, tests=10, seeds=1),
    "cpu": Size(),
    "accelerator": Size(
        3, (625, 1250, 2500, 5000, 10_000), 6, 384, 6, 256, 5000, 1e-3, dropout_rate=0.2
    ),
}  # fmt: skip
EQUALS, PLUS = 10, 11


def rows(size: Size, sums: np.ndarray, reverse: bool) -> list[dict[str, np.ndarray]]:
    """Rows of sums, each of which is given as the number whose digits are the two operands'."""
    a, b = np.divmod(sums, 10**size.digits)
    powers = 10 ** np.arange(size.digits, -1, -1)
    first, second, answer = (number[:, None] // powers % 10 for number in (a, b, a + b))
    plus, equals = (np.full((len(sums), 1), sign) for sign in (PLUS, EQUALS))
    answer = answer[:, ::-1] if reverse else answer
    tokens = np.hstack([first[:, 1:], plus, second[:, 1:], equals, answer])
    labels = np.where(np.arange(tokens.shape[1]) < tokens.shape[1] - len(powers), -1, tokens)
    examples = zip(tokens, labels, strict=True)
    return [{"tokens": row[:-1], "labels": label[1:]} for row, label in examples]


def decoder(size: Size) -> Decoder:
    """A decoder of digits."""
    return Decoder(
        ModelConfig(
            vocab_size=12, max_len=3 * size.digits + 2, num_layers=size.num_layers,
            d_model=size.width, num_heads=size.heads, positions="learned", activation="relu",
            dropout_rate=size.dropout_rate,
        )
    )  # fmt: skip


def runs(size: Size) -> list[Runs]:
    """What is trained."""
    model, count = decoder(size).config, 2 * len(size.examples) * size.seeds
    return [Runs(model, count, size.steps, size.batch_size, model.max_len)]


def train(size: Size) -> np.ndarray:
    """Accuracies of plain and of reversed sums `[2, seeds, examples]`."""
    model = decoder(size)

    @jax.jit
    def accuracy(params: Any, test: Any) -> jax.Array:
        # A greedy decoder errs if and only if it errs at some digit after the right ones before.
        predictions = model.apply({"params": params}, test["tokens"]).logits.argmax(-1)
        return ((predictions == test["labels"]) | (test["labels"] < 0)).all(-1).mean()

    def data(reverse: bool, examples: int, seed: int) -> TrainingData:
        """The test sums of a seed, and the first of its other sums."""
        sums = np.random.default_rng(seed).permutation(100**size.digits)
        chosen = rows(size, sums[: size.tests + examples], reverse)
        (test,) = Batches(chosen[: size.tests], size.tests).once()
        return TrainingData(
            Batches(chosen[size.tests :], size.batch_size, seed=seed), lambda: [test],
            scores=lambda params: {"accuracy": float(accuracy(params, test))},
        )  # fmt: skip

    def make() -> Trial:
        peak, steps = size.learning_rate, size.steps
        rate = optax.warmup_cosine_decay_schedule(0, peak, steps // 10, steps, peak / 10)
        return Trial(language_model_loss(model), model.init_params, optax.adamw(rate, b2=0.99))

    values = {"reverse": [False, True], "seed": range(size.seeds), "examples": size.examples}
    loop = LoopConfig(steps=size.steps, log_every=size.steps // 5, eval_every=size.steps)
    trained = fit_sweep(make, values, data, None, loop)
    accuracies = [run.result.records[-1]["accuracy"] for run in trained]
    return np.reshape(accuracies, (2, size.seeds, len(size.examples)))


def needed(accuracies: np.ndarray, examples: Sequence[int]) -> list[float]:
    """Fewest examples with an accuracy of 90 %, in each seed; infinity if there are none."""
    enough = np.where(accuracies >= 0.9, np.array(examples, float), np.inf)
    return [float(count) for count in enough.min(1)]


def rules_hold(plain: np.ndarray, reverse: np.ndarray, examples: Sequence[int]) -> list[bool]:
    """Whether each part of the rule is so, by accuracies `[seeds, examples]`."""
    pairs = zip(needed(plain, examples), needed(reverse, examples), strict=True)
    fewer = all(2 * few <= many and few < np.inf for many, few in pairs)
    return [fewer, bool((np.diff(reverse).max(1) >= 0.5).all())]


def measure(size: Size) -> Finding:
    """Compares the accuracies of plain and of reversed sums."""
    plain, reverse = train(size)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for style, accuracies in (("C0o-", plain), ("C1o-", reverse)):
        axes.plot(size.examples, accuracies.T, style)
    axes.set(
        xscale="log", xlabel="training examples", title="Sums with every digit right, by seed",
        ylim=(-0.03, 1.03),
    )  # fmt: skip
    axes.set_xticks(size.examples, map(str, size.examples))
    axes.minorticks_off()
    axes.legend(axes.lines[:: size.seeds], ["plain", "reversed"])
    axes.axhline(0.9, color="black", linestyle=":")
    numbers = {"plain": plain.tolist(), "reversed": reverse.tolist()}
    summary = (
        f"Examples for 90 % in each seed: plain {needed(plain, size.examples)}, reversed "
        f"{needed(reverse, size.examples)}. Mean accuracy by number of examples: plain "
        f"{plain.mean(0).round(2).tolist()}, reversed {reverse.mean(0).round(2).tolist()}."
    )
    return Finding(judge(*rules_hold(plain, reverse, size.examples)), summary, figure, numbers)


if __name__ == "__main__":
    main("arithmetic", SIZES, measure, runs)
