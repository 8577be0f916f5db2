"""Every example runs as it stands, from an empty folder, and stays short.

To run them takes 3 minutes, so these tests are thorough; .ci/run runs them on one Python.
"""

import contextlib
import functools
import io
import os
import pathlib
import runpy

import chex
import jax
import pytest

from jaxformer.config import ModelConfig, RotaryConfig
from jaxformer.models import Decoder

EXAMPLES = sorted(pathlib.Path(__file__).parents[2].glob("examples/*.py"))
NEEDS = {"fused_gpu_attention": "tokamax"}
"""Packages of examples that jaxformer does not use itself."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs an example once, in a folder of its own, and returns what it prints."""

    @functools.cache
    def printed(name, time=1):
        if name in NEEDS:
            pytest.importorskip(NEEDS[name], exc_type=ImportError)
        path = next(path for path in EXAMPLES if path.stem == name)
        folder = tmp_path_factory.mktemp(name) if time == 1 else folders[name]
        folders[name], before, out = folder, pathlib.Path.cwd(), io.StringIO()
        os.chdir(folder)
        try:
            # The rank promotion that tests forbid is a reader's default.
            with jax.numpy_rank_promotion("allow"), contextlib.redirect_stdout(out):
                runpy.run_path(str(path), run_name="__main__")
        finally:
            os.chdir(before)
        return out.getvalue()

    folders = {}
    return printed


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_prints_a_figure(path, run):
    assert any(letter.isdigit() for letter in run(path.stem)), f"{path} prints no figure"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_says_how_to_run_it(path):
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line]
    most = 150 if path.stem == "one_page" else 60
    assert len(lines) < most, f"{path} has {len(lines)} lines"
    assert any(f"python examples/{path.name}" in line for line in lines[:8]), path
    private = [
        line for line in lines if "import _" in line or "._" in line.replace("._replace", "")
    ]
    assert not private, f"{path} uses what is not public: {private}"


def test_one_page_has_the_parameters_and_logits_of_the_decoder():
    page = runpy.run_path(str(next(path for path in EXAMPLES if path.stem == "one_page")))
    tokens = jax.random.randint(jax.random.key(0), (2, 12), 0, 11)
    config = ModelConfig(
        vocab_size=11, max_len=12, num_layers=3, d_model=16, num_heads=2, d_ff=24,
        positions=RotaryConfig(), norm="rms_norm", use_bias=False,
    )  # fmt: skip
    decoder = Decoder(config)
    params = decoder.init_params(jax.random.key(1))
    expected = decoder.apply({"params": params}, tokens).logits
    model = page["OnePageDecoder"](page["Config"](V=11, T=12, L=3, D=16, N=2, F=24))
    with jax.numpy_rank_promotion("allow"):
        of_page = model.init(jax.random.key(1), tokens)["params"]
        logits = model.apply({"params": params}, tokens)
    chex.assert_trees_all_equal_shapes(of_page, params)
    chex.assert_trees_all_close(logits, expected, rtol=1e-5, atol=1e-5 * float(abs(expected).max()))


def test_own_data_is_learnt_and_a_second_run_goes_on(run):
    first, second = run("fit_own_data"), run("fit_own_data", time=2)
    assert first.endswith("after 4, 7, 10, 13 comes 16\n") and "resuming" not in first
    assert second.splitlines()[0] == "resuming at step 60 of 60"
    assert second.splitlines()[-1] == first.splitlines()[-1]


def test_own_task_tells_apart_what_only_its_place_does(run):
    assert run("own_task").endswith("every run walk: DET NOUN VERB\n")


def test_word_vectors_stay_and_the_rest_learns(run):
    assert run("word_vectors").endswith("4 of 8 words keep their vectors: True; 100% right\n")
