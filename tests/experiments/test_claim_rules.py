"""Each part of a claim's rule holds in every seed, and fails by itself where it should."""

import importlib
import pathlib

import numpy as np
import pytest

LATE_AND_SPARSE = {
    "training": [100, 90], "validation": [500, 450], "without": [1000, np.inf],
    "start": [0.3, 0.2], "end": [0.8, 0.9],
}  # fmt: skip
FORWARD = np.array([[0.0, 0.1, 0.95], [0.0, 0.1, 0.8]])
REVERSED = np.array([[0.2, 0.9, 1.0], [0.4, 0.9, 1.0]])
SAME, HIGHER = np.array([[2.0, 1.9], [2.1, 2.1]]), np.array([[2.0, 2.2], [2.1, 2.2]])
STEPS = np.arange(1, 101)
EARLY, ABRUPT = (1 / (1 + np.exp((middle - STEPS) / 3)) for middle in (40, 60))
GRADUAL = 1 - np.exp(-STEPS / 20)
BEST = np.array([[[-5, -6], [-6, -7], [-7, -8]], [[-5, -6], [-6, -7], [-5, -7]]])  # by seed
CHANGES = np.array([[[1.0, 2.0], [2.1, 4.1]], [[1.0, 2.0], [1.4, 2.9]]])
RATIO, FLAT = np.array([[1.04, 0.98], [0.97, 1.0]]), np.array([[0.16, 0.17], [0.17, 0.16]])
FALLING, LARGEST = np.array([[0.2, 1e-3], [0.3, 2e-3]]), np.array([[0.2, 0.97], [0.3, 0.99]])
LAST_LOSSES = {
    "A": {1: [1.5, 1.6], 4: [1.2, 1.3], 16: [1.3, 1.4]},
    "B": {4: [1.3, 1.4], 8: [1.1, 1.1], 16: [1.2, 1.3]},
    "C": {32: [1.7, 1.5], 64: [1.2, 1.3], 128: [1.1, 1.2]},
}


def arithmetic(plain=FORWARD, reverse=REVERSED):
    return np.array(plain), np.array(reverse), (1000, 2000, 4000)


def grokking(**changes):
    return (LATE_AND_SPARSE | changes,)


def heads_and_widths(row="A", value=1, losses=(1.5, 1.6)):
    rows = {name: {key: np.array(x) for key, x in LAST_LOSSES[name].items()} for name in "ABC"}
    rows[row][value] = np.array(losses)
    return rows, 4


def induction_heads(single_score=0 * ABRUPT, **changes):
    curves = {"gain": 3 * ABRUPT, "without": 0 * ABRUPT, "alone": 2 * ABRUPT, "score": ABRUPT}
    one_layer = np.stack([GRADUAL, GRADUAL, GRADUAL, single_score, 0 * GRADUAL])
    return STEPS, one_layer, np.stack([*(curves | changes).values(), 4 + 0 * ABRUPT])


def instability(no_qk_norm=(0.2, 0.3), no_z_loss=(0.2, 0.3), scores=(5, 6), scores_without=(60,)):
    sensitivities = {"both": [0.1, 0.2], "no qk-norm": no_qk_norm, "no z-loss": no_z_loss}
    tables = sensitivities, {"both": scores, "no qk-norm": [*scores_without, np.inf]}
    return tuple({name: np.array(row) for name, row in table.items()} for table in tables)


def label_smoothing(**changes):
    scores = {
        "perplexity": [[2.0, 2.1], [2.2, 2.2]], "bleu": [[80.0, 81.0], [80.5, 82.0]],
        "exact": [[0.6, 0.7], [0.61, 0.71]],
    } | changes  # fmt: skip
    return ({key: np.stack([np.ones((2, 2)), x], axis=-1) for key, x in scores.items()},)


def mu_transfer(best=(), changes=()):
    tables = BEST.copy(), CHANGES.copy()
    for table, entry in zip(tables, (best, changes), strict=True):
        if entry:
            table[entry[0]] = entry[1]
    return tables


def score_variance(variance=RATIO, plain=FALLING, largest=LARGEST, scaled=FLAT):
    return variance, plain, largest, scaled


def train_short_test_long(changes=()):
    losses = {"sinusoidal": HIGHER, "rotary": HIGHER, "T5's bias": HIGHER, "ALiBi": SAME}
    return (losses | {"sinusoidal, trained at 2 L": SAME} | dict(changes),)


# What is measured by each script, changes of it, and which parts of the rule then hold.
RULES = {
    arithmetic: [
        ({}, [1, 1]),
        ({"plain": REVERSED, "reverse": FORWARD}, [0, 1]),
        ({"plain": [[0.0, 0.9, 1.0], FORWARD[1]]}, [0, 1]),
        ({"reverse": [REVERSED[0], [0.5, 0.9, 1.0]]}, [1, 0]),
        ({"plain": [[0.0, 0.1, 0.2]], "reverse": [[0.0, 0.1, 0.8]]}, [0, 1]),
    ],
    grokking: [
        ({}, [1, 1, 1]),
        ({"validation": [500, 440]}, [0, 1, 1]),
        ({"start": [0.3, 0.4]}, [1, 0, 1]),
        ({"end": [0.7, 0.9]}, [1, 0, 1]),
        ({"without": [990, np.inf]}, [1, 1, 0]),
        ({"validation": [500, np.inf]}, [0, 1, 0]),
    ],
    heads_and_widths: [
        ({}, [1, 1, 1, 1]),
        ({"losses": [1.5, 1.3]}, [0, 1, 1, 1]),
        ({"value": 16, "losses": [1.2, 1.4]}, [1, 0, 1, 1]),
        ({"row": "B", "value": 4, "losses": [1.3, 1.2]}, [1, 1, 0, 1]),
        ({"row": "C", "value": 128, "losses": [1.1, 1.3]}, [1, 1, 1, 0]),
        ({"row": "C", "value": 32, "losses": [1.2, 1.5]}, [1, 1, 1, 0]),
    ],
    induction_heads: [
        ({}, [1, 1, 1]),
        ({"gain": 3 * GRADUAL, "score": GRADUAL**1.7}, [0, 1, 1]),
        ({"gain": 1.9 * ABRUPT}, [0, 1, 1]),
        ({"score": EARLY}, [0, 1, 1]),
        ({"score": 0.4 * ABRUPT}, [1, 0, 1]),
        ({"single_score": 0.4 * ABRUPT}, [1, 0, 1]),
        ({"without": 2 * ABRUPT}, [1, 1, 0]),
        ({"alone": ABRUPT}, [1, 1, 0]),
    ],
    instability: [
        ({}, [1, 1, 1]),
        ({"no_qk_norm": [0.2, 0.2]}, [0, 1, 1]),
        ({"no_z_loss": [0.1, 0.3]}, [1, 0, 1]),
        ({"scores_without": [40.0]}, [1, 1, 0]),
        ({"scores": [5.0, np.inf]}, [1, 1, 0]),
    ],
    label_smoothing: [
        ({}, [1, 1, 1]),
        ({"perplexity": [[2.0, 2.2], [2.2, 2.1]]}, [0, 1, 1]),
        ({"bleu": [[80.0, 81.0], [80.4, 82.0]]}, [1, 0, 1]),
        ({"exact": [[0.6, 0.7], [0.61, 0.7]]}, [1, 1, 0]),
        ({"bleu": [[97.0, 97.2], [99.0, 99.0]]}, [1, 0, 0]),
    ],
    mu_transfer: [
        ({}, [1, 1, 1]),
        ({"best": ((1, 2, 0), -7)}, [0, 1, 1]),
        ({"best": ((0, 2, 1), -7)}, [1, 0, 1]),
        ({"changes": ((0, 1, 0), 1.9)}, [1, 1, 0]),
        ({"changes": ((1, 1, 1), 3.1)}, [1, 1, 0]),
    ],
    score_variance: [
        ({}, [1, 1, 1]),
        ({"variance": RATIO + 0.02}, [0, 1, 1]),
        ({"variance": RATIO - 0.03}, [0, 1, 1]),
        ({"plain": FALLING * np.array([[1, 1], [1, 2]])}, [1, 0, 1]),
        ({"largest": LARGEST - 0.03}, [1, 0, 1]),
        ({"scaled": FLAT * np.array([[1.0, 1.0], [1.0, 0.5]])}, [1, 1, 0]),
    ],
    train_short_test_long: [
        ({}, [1, 1, 1]),
        ({"changes": [("ALiBi", HIGHER)]}, [0, 1, 0]),
        ({"changes": [("rotary", SAME)]}, [1, 0, 1]),
        ({"changes": [("none", SAME)]}, [1, 1, 1]),
        ({"changes": [("sinusoidal, trained at 2 L", SAME - 0.02)]}, [1, 1, 0]),
    ],
}


@pytest.mark.parametrize(
    ("measured", "changes", "holds"),
    [(measured, *row) for measured, rows in RULES.items() for row in rows],
)
def test_each_part_of_a_rule_holds_in_every_seed_or_not_at_all(
    measured, changes, holds, monkeypatch
):
    monkeypatch.syspath_prepend(str(pathlib.Path("experiments/claims")))
    script = importlib.import_module(measured.__name__)
    assert [*script.rules_hold(*measured(**changes))] == holds
