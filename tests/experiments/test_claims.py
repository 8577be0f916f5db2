"""Each claim finds what it says at the smallest size, and does not without its mechanism."""

import importlib.util
import json
import pathlib
import re
import sys
import tomllib
from typing import get_args

import jax
import numpy as np
import pytest

from jaxformer.functional import dot_product_attention

FOLDER = pathlib.Path("experiments/claims")
NOT_ALL = ["holds in part", "does not hold at this size"]
# Verdicts at the smallest size; ten steps are too few for any learning rate to train.
AT_TOY = {
    "arithmetic": ["does not hold at this size"],
    "gradient_descent": ["holds"],
    "grokking": ["does not hold at this size"],
    "heads_and_widths": NOT_ALL,
    "induction_heads": NOT_ALL,
    "instability": ["holds in part"],
    "label_smoothing": NOT_ALL,
    "layer_norm": NOT_ALL,
    "mu_transfer": NOT_ALL,
    "muon": NOT_ALL,
    "rank_collapse": ["holds"],
    "score_variance": ["holds"],
    "train_short_test_long": NOT_ALL,
}
SECONDS = {"gradient_descent", "rank_collapse", "score_variance"}  # of which no plan is needed


@pytest.fixture
def load(monkeypatch):
    """Imports a script of the folder, as Python does that runs it."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def test_every_claim_is_known():
    assert list(tomllib.loads((FOLDER / "claims.toml").read_text("utf-8"))) == list(AT_TOY)
    assert all((FOLDER / f"{name}.py").exists() for name in AT_TOY)


@pytest.mark.parametrize(
    "name",
    # It compiles a program for each row of its table.
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "heads_and_widths" else name
        for name in AT_TOY
    ],
)
def test_claim_measures_a_verdict_and_writes_its_page(name, load, monkeypatch, tmp_path, capsys):
    script, claim = load(name), load("claim")
    monkeypatch.setattr(sys, "argv", [name, "--scale", "toy", "--out", str(tmp_path)])
    with jax.enable_x64(name == "rank_collapse"):
        claim.main(name, script.SIZES, script.measure)
    assert set(script.SIZES) == {"toy", "cpu", "accelerator"}
    (path,) = tmp_path.glob("*.json")
    finding = json.loads(path.read_text())
    assert finding["verdict"] in get_args(claim.Verdict) and finding["verdict"] in AT_TOY[name]
    assert f"{claim.Claim.load(name).title}: {finding['verdict']} (" in capsys.readouterr().out
    page = path.with_suffix(".html").read_text()
    assert 'src="data:image/png;base64,' in page
    other_pages = {other.name for other in tmp_path.glob("*_*.html")} - {
        path.with_suffix(".html").name
    }
    assert other_pages == set(re.findall('<a href="(.*?)">', page))
    assert bool(other_pages) == (name == "induction_heads")


def test_one_page_has_a_table_and_a_section_of_every_claim(load, monkeypatch, tmp_path):
    claim, script = load("claim"), load("rank_collapse")
    # Not by its name, which the scripts of the tutorials have a file of, too.
    spec = importlib.util.spec_from_file_location("all_claims", FOLDER / "run_all.py")
    run_all = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run_all)
    assert {path.stem for path in run_all.scripts()} == set(AT_TOY)
    monkeypatch.setattr(sys, "argv", ["", "--scale", "toy", "--out", str(tmp_path)])
    with jax.enable_x64(True):
        claim.main("rank_collapse", script.SIZES, script.measure)
    page = run_all.page(tmp_path)
    assert "<td>Rank collapse</td><td>holds</td>" in page and page.count("<section>") == 1


def test_a_plan_estimates_all_runs_and_trains_nothing(load, monkeypatch, tmp_path, capsys):
    script, claim = load("grokking"), load("claim")
    words = ["", "--scale", "accelerator", "--plan", "H100", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    claim.main("grokking", script.SIZES, None, script.runs)
    line, total = capsys.readouterr().out.splitlines()
    # 30 % of 113 ** 2 pairs, three tokens each; with weight decay and without.
    tokens = 3 * int(0.3 * 113**2)
    assert line.startswith(f"6 runs of 0.2 M parameters, 40,000 steps of {tokens:,} tokens: 0.0")
    assert total.startswith("in all: 0.0") and total.endswith(" hours of one H100")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", sorted(AT_TOY.keys() - SECONDS))
def test_the_runs_of_a_plan_are_those_that_are_trained(name, load):
    script = load(name)
    for size in script.SIZES.values():
        for runs in script.runs(size):
            assert runs.steps >= size.steps and runs.count % size.seeds == 0
            assert runs.length <= runs.model.max_len


def test_rank_does_not_collapse_with_skips_in_place_of_none(load, monkeypatch):
    script = load("rank_collapse")
    monkeypatch.setitem(script.VARIANTS, "attention alone", script.VARIANTS["with skips"])
    with jax.enable_x64(True):
        assert script.measure(script.SIZES["toy"]).verdict == "holds in part"


def test_attention_with_softmax_is_no_step_of_gradient_descent(load, monkeypatch):
    script = load("gradient_descent")
    monkeypatch.setattr(script, "linear_attention", dot_product_attention)
    assert script.measure(script.SIZES["toy"]).verdict == "does not hold at this size"


POST, PRE = [[1.0, 1.1], [3.0, 3.1]], [[1.0, 1.0], [1.0, 1.0]]  # with warm-up, without


@pytest.mark.parametrize(
    "losses, claimed",
    [
        ([POST, PRE], True),
        ([POST, [[3.0, 3.0], PRE[1]]], True),
        ([[[1.0, 3.0], POST[1]], PRE], False),
        ([[POST[0], [1.0, 3.0]], PRE], False),
        ([POST, [PRE[0], [3.0, 1.0]]], False),
    ],
)
def test_warm_up_must_decide_for_post_norm_alone_in_every_seed(losses, claimed, load):
    script = load("layer_norm")
    assert script.is_as_claimed(np.array(losses)[:, :, None], limit=2.0).tolist() == [claimed]


@pytest.mark.parametrize(
    "gain, verdict",
    [
        ([0.5, 0.5], "holds"),
        ([0.5, 0.4], "holds in part"),
        ([0.1, 0.1], "holds in part"),
        ([0.5, -0.1], "does not hold at this size"),
    ],
)
def test_muon_must_reach_the_loss_with_half_the_steps_in_every_seed(
    gain, verdict, load, monkeypatch
):
    """Losses fall by a nat with all steps; a gain is of all steps, at the better of two rates."""
    script = load("muon")

    def train(size, name, share, data):
        best = 3 - share - np.array(gain) * (name == "Muon")
        return np.stack([best + 1, best])[None]

    monkeypatch.setattr(script, "train", train)
    monkeypatch.setattr(script, "step_seconds", lambda *_: {"AdamW": 1.0, "Muon": 2.0})
    size = script.Size(widths=(8,), learning_rates=(1e-3, 1e-2), seeds=2)
    finding = script.measure(size)
    assert finding.verdict == verdict and "2.00 times as long" in finding.summary
