"""A decoder with ALiBi, trained on short sequences, predicts longer ones as well.

python experiments/claims/train_short_test_long.py
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import optax
from byte_decoders import byte_decoder
from claim import Finding, Runs, judge, main
from matplotlib.figure import Figure

from jaxformer import text
from jaxformer.config import LoopConfig, RelativeConfig
from jaxformer.models import Decoder
from jaxformer.sweeps import fit_sweep
from jaxformer.training import TrainingData, Trial, language_model_loss

TWICE = "sinusoidal, trained at 2 L"
KINDS = ("sinusoidal", TWICE, "rotary", "T5's bias", "ALiBi", "none")
Losses = Mapping[str, np.ndarray]  # by kind of positions: nats per byte [seeds, lengths]


@dataclasses.dataclass(frozen=True)
class Size:
    """Sizes; a batch is in sequences of L bytes, a test window has 16 L."""

    num_layers: int = 2
    width: int = 64
    heads: int = 4
    length: int = 64
    batch_size: int = 16
    steps: int = 500
    learning_rate: float = 3e-3
    test_windows: int = 24
    seeds: int = 3
    factors: tuple[int, ...] = (1, 2, 4, 8, 16)
    kinds: tuple[str, ...] = KINDS


SIZES = {
    "toy": Size(1, 8, 2, 8, 2, 4, 1e-2, 1, 1, (1, 2), ("sinusoidal", TWICE, "ALiBi")),
    "cpu": Size(),
    "accelerator": Size(16, 1024, 8, 512, 144, 286_000, learning_rate=5e-4),
}


def decoder(size: Size, kind: str) -> Decoder:
    """A decoder of bytes with one of the kinds of positions."""
    far = size.length // 4
    t5 = RelativeConfig(num_buckets=min(far, 32), max_distance=far)
    schemes: Any = {TWICE: "sinusoidal", "T5's bias": t5, "ALiBi": "alibi"}
    return byte_decoder(
        max_len=16 * size.length, num_layers=size.num_layers, d_model=size.width,
        num_heads=size.heads, positions=schemes.get(kind, kind), init_std=size.width**-0.5,
        scale_embeddings=True,
    )  # fmt: skip


def runs(size: Size) -> list[Runs]:
    """What is trained."""
    return [
        Runs(decoder(size, kind).config, size.seeds, size.steps, size.batch_size, size.length)
        for kind in size.kinds
    ]


def trial(size: Size, kind: str) -> Trial:
    """A decoder, its loss, and Adam."""
    model = decoder(size, kind)
    optimizer = optax.adam(optax.cosine_decay_schedule(size.learning_rate, size.steps))
    return Trial(language_model_loss(model), model.init_params, optimizer)


def train(size: Size) -> Losses:
    """Trains every kind of positions in each seed, and tests it at all lengths."""
    tokens = text.build_stream(text.python_documents(), text.byte_tokenizer()).tokens
    start = len(tokens) * 9 // 10
    whole = np.zeros(1, np.int64)  # no document begins within
    training = text.TokenStream(tokens[:start], whole)
    tested = [(factor * size.length, size.batch_size // factor) for factor in size.factors]
    tested_tokens = tokens[start:][: 16 * size.length * size.test_windows + 1]
    test = text.TokenStream(tested_tokens, whole)

    def validation() -> Mapping[str, Any]:
        return {
            str(length): text.Batches(text.Windows(test, length), rows).once()
            for length, rows in tested
        }

    def data(kind: str, seed: int) -> TrainingData:
        factor = 2 if kind == TWICE else 1
        windows = text.Windows(training, factor * size.length)
        batches = text.Batches(windows, size.batch_size // factor, seed=seed)
        return TrainingData(batches, validation)

    loop = LoopConfig(steps=size.steps, log_every=size.steps // 4, eval_every=size.steps)
    values = {"kind": size.kinds, "seed": range(size.seeds)}
    losses: dict[str, list[Any]] = {kind: [] for kind in size.kinds}
    for run in fit_sweep(lambda kind: trial(size, kind), values, data, None, loop):
        last = run.result.records[-1]
        losses[run.values["kind"]].append([last[f"loss {length}"] for length, _ in tested])
    return {kind: np.array(by_length) for kind, by_length in losses.items()}


def rules_hold(losses: Losses) -> tuple[bool, bool, bool]:
    """Which of the three parts of the rule are so."""
    rises = {kind: by_length - by_length[:, :1] for kind, by_length in losses.items()}
    rises_of_others = [rises[kind][:, -1] for kind in rises if kind not in ("ALiBi", TWICE, "none")]
    apart = losses["ALiBi"][:, 1] - losses[TWICE][:, 1]
    return bool((rises["ALiBi"] <= 0).all()), np.min(rises_of_others) >= 0.02, apart.max() <= 0.01


def measure(size: Size) -> Finding:
    """Trains and tests all kinds of positions, and draws the loss by length."""
    losses = train(size)
    lengths = [size.length * factor for factor in size.factors]
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    for index, (kind, by_length) in enumerate(losses.items()):
        axes.plot(range(len(lengths)), by_length.mean(0), f"C{index}", label=kind)
        axes.plot(range(len(lengths)), by_length.T, f"C{index}.")
    axes.set_xticks(range(len(lengths)), lengths)
    axes.set(xlabel="length in testing", title=f"Nats per byte, trained at {size.length} bytes")
    figure.legend(loc="outside right upper")
    rises = {kind: by_length[:, -1] - by_length[:, 0] for kind, by_length in losses.items()}
    rise_texts = [
        f"{kind} {losses[kind][:, 0].mean():.2f} ({rise.min():+.3f} to {rise.max():+.3f})"
        for kind, rise in rises.items()
    ]
    apart = losses["ALiBi"][:, 1] - losses[TWICE][:, 1]
    summary = (
        f"Mean loss at {lengths[0]}, and by how much it is higher at {lengths[-1]}: "
        f"{', '.join(rise_texts)}. At {lengths[1]}, ALiBi minus sinusoidal positions trained "
        f"there: {apart.min():+.3f} to {apart.max():+.3f}."
    )
    numbers = {
        "lengths": lengths,
        **{kind: by_length.tolist() for kind, by_length in losses.items()},
    }
    return Finding(judge(*rules_hold(losses)), summary, figure, numbers)


if __name__ == "__main__":
    main("train_short_test_long", SIZES, measure, runs)
