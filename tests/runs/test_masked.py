"""Runs of an encoder that predicts masked tokens: one tiny training."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxformer import runs
from jaxformer.config import MeshConfig, SamplesConfig
from jaxformer.errors import DataError
from jaxformer.models import MaskedLanguageModel
from jaxformer.training import SingleRunner, make_runner
from tests.runs import test_classification, tiny

TEXT = ["the cat sat on the mat; the dog sat on the log."] * 30


TRAINING = {"steps": 200, "eval_every": 200, "checkpoint_every": 200}


def config(folder, **changes):
    paths = (tiny.write(folder / "text.txt", TEXT),)
    data = {"source": "files", "paths": paths, "validation_fraction": 0.2, "mask_rate": 0.25}
    return tiny.config(folder, architecture="encoder", data=data, **changes)


def full_config(folder):
    return config(folder, model={"layer_execution": "scan", "dropout_rate": 0.0}, training=TRAINING)


@pytest.fixture(scope="module")
def trained(masked_run):
    """The folder that a finished run is in."""
    return masked_run[0].parent


@pytest.fixture(scope="module")
def run(trained):
    return runs.open_run(trained / "run")


def test_evaluation_is_that_of_training(trained, run):
    result, stream = tiny.evaluated_as_trained(trained, run, 1e-5), tiny.validation_of(run)[""]
    assert list(tiny.figures(trained, "validation_loss")) == [run.step]
    # A quarter of 12 in each window, of which the last may be shorter.
    assert result.predicted == pytest.approx(stream.tokens.size / 4, abs=3)
    assert result.loss < 0.7 * tiny.figures(trained, "loss")[5]
    assert result.bits_per_byte is None and result.scores == {} and result.unit == "masked token"
    assert str(result).startswith(f"{result.loss:.4f} nats per masked token, perplexity ")
    assert tiny.figures(trained, "masked_tokens_per_second")


@pytest.mark.essential
def test_fills_are_the_likeliest_ordinary_tokens(run):
    """Of each mask, with the other masked too."""
    tokenizer = run.tokenizer
    mask, words = tokenizer.mask, [tokenizer.encode(w)[0] for w in ("the", "sat", "on")]
    ids = np.array([words[0], mask, *words[1:], mask])
    model = MaskedLanguageModel(run.config.model)
    forward = jax.jit(lambda params: model.apply({"params": params}, ids[None]).logits)
    logits = np.asarray(forward(run.params))[0]
    special = (mask, tokenizer.end_of_text, tokenizer.unknown)
    ordinary = np.array([i for i in range(tokenizer.vocab_size) if i not in special])
    (mask_fills,) = run.fill_masks(["the [MASK] sat on [MASK]"], num_best=99)
    assert [fill.text for fill in mask_fills[0]] != [fill.text for fill in mask_fills[1]]
    for fills, place in zip(mask_fills, (1, 4), strict=True):
        expected = np.exp(logits[place, ordinary])
        expected /= expected.sum()
        order = np.argsort(-expected)
        assert [fill.text for fill in fills] == [tokenizer.decode([ordinary[i]]) for i in order]
        np.testing.assert_allclose([f.probability for f in fills], expected[order], rtol=1e-4)


def test_prompts_are_validation_lines_with_a_mask(run):
    prompts = run.config.samples.prompts
    assert len(prompts) == 3 and all(prompt.endswith("[MASK]") for prompt in prompts)


@pytest.mark.parametrize(
    ("prompt", "num_best", "message"),
    [
        ("the cat", 1, r"must have \[MASK\] where a token is to be predicted, got 'the cat'"),
        ("", 1, r"must have \[MASK\]"),
        ("the " * 12 + "[MASK]", 1, "1 to max_len=12 tokens, got 13"),
    ],
)
def test_texts_that_cannot_be_filled_are_refused(run, prompt, num_best, message):
    with pytest.raises(DataError, match=message):
        run.fill_masks(["[MASK]", prompt], num_best)


def test_samples_without_a_mask_are_refused_before_training(tmp_path):
    with pytest.raises(DataError, match="samples.prompts has 'the cat': a text must have"):
        runs.train_run(config(tmp_path, samples=SamplesConfig(prompts=("the cat",))))
    assert not (tmp_path / "run").exists()


def test_mask_stands_for_the_space_before_its_token(tmp_path):
    """Where byte pairs have that space in their tokens."""
    task = tiny.prepare(config(tmp_path, tokenizer={"kind": "bpe", "vocab_size": 300}))
    model, tokenizer = task.model, task.tokenizer
    assert tokenizer.has_leading_spaces and tokenizer.mask == tokenizer.vocab_size - 1
    assert all(prompt.endswith(" [MASK]") for prompt in model.config.samples.prompts)
    cat, sat = tokenizer.encode(" cat").tolist(), tokenizer.encode(" sat").tolist()
    the = tokenizer.encode("the").tolist()
    assert model.encode("the [MASK] sat").tolist() == [*the, tokenizer.mask, *sat]
    assert model.encode("the cat [MASK]").tolist() == [*the, *cat, tokenizer.mask]


def test_classifier_starts_from_the_encoder_of_a_masked_language_model(run, tmp_path):
    classifier_config = dataclasses.replace(
        test_classification.config(tmp_path), tokenizer=run.config.tokenizer,
        model=dataclasses.replace(run.config.model, vocab_size=None), init_from=str(run.folder),
    )  # fmt: skip
    classifier = runs.train_run(tiny.standing_still(classifier_config)).params
    encoder = {name: run.params["encoder"][name] for name in classifier["encoder"]}
    tiny.assert_stood_still(encoder, classifier["encoder"])
    assert runs.open_run(classifier_config.out).tokenizer.words == run.tokenizer.words

    def started(config, runner):
        config = dataclasses.replace(
            config, init_from=f"{classifier_config.out}@1", out=str(tmp_path / "new")
        )
        task = runs.prepare_task(config)
        return task.source.start(task.model, runner)

    params = started(classifier_config, SingleRunner()).params
    jax.tree.map(np.testing.assert_array_equal, params, classifier)
    lines = [line.replace("\tsky", "\theaven") for line in test_classification.LINES]
    data = test_classification.config(tmp_path, lines).data
    for runner in SingleRunner(), make_runner(mesh=MeshConfig(fsdp=2), devices=2):
        params, new = started(dataclasses.replace(classifier_config, data=data, seed=1), runner)
        jax.tree.map(np.testing.assert_array_equal, params["encoder"], classifier["encoder"])
        kernels = jax.device_get((params["class_kernel"], classifier["class_kernel"]))
        assert (kernels[0] != kernels[1]).all()
        assert "class_kernel" in new
    table = params["encoder"]["embedding"]["embedding"]
    assert table.addressable_shards[0].data.size == table.size // 2
