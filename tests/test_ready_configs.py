"""The configs that come with the project: each loads, says how to run it, and fits any text."""

import pathlib

import pytest

from jaxformer import runs
from jaxformer.config import load_config

TEXT = "the cat sat on the mat; the dog sat on the log.\n" * 40


@pytest.mark.parametrize("path", sorted(pathlib.Path("configs").glob("*.toml")), ids=str)
def test_samples_of_ready_configs_fit_any_text(path):
    """Also one in which a prompt chosen beforehand would have unknown characters."""
    config, texts = load_config(path), ([TEXT[:1000]], [TEXT[1000:]])
    tokenizer = runs._train_tokenizer(config.tokenizer, *texts)
    config = runs._fill_in(config, tokenizer, texts[1])
    runs._check_samples(config, tokenizer, documents=1)
    assert len(config.samples.prompts) == 3


@pytest.mark.parametrize("path", sorted(pathlib.Path("configs").glob("*.toml")), ids=str)
def test_ready_configs_load_and_say_how_to_run_them(path):
    config, header = load_config(path), path.read_text(encoding="utf-8")
    assert config.out == f"runs/{path.stem}"
    assert f"jaxformer train configs/{path.name}" in header
    for word in ("Command:", "Expected:", "Time:"):
        assert word in header
