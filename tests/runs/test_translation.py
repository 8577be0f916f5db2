"""Runs of an encoder-decoder: one tiny training, and what is refused before there is any."""

import json
import math
import sys

import jax
import numpy as np
import pytest
import sacrebleu

from jaxformer import runs, text
from jaxformer.config import BeamSearchConfig, SamplesConfig, TranslationConfig
from jaxformer.errors import CheckpointError, ConfigError, DataError
from jaxformer.inference import translate
from jaxformer.runs.folder.files import start_folder
from jaxformer.text.translation_scores import translation_scores
from jaxformer.training import PmapRunner
from tests.runs import tiny

ENGLISH = ["one", "two", "three", "four", "five", "six"]
GERMAN = ["eins", "zwei", "drei", "vier", "fünf", "sechs"]


def pairs(count=40):
    """Numbers in English and German, each sentence once."""
    examples = []
    for i in range(count):
        digits = [i % 6, i // 6 % 6, i // 36, i % 5][: 3 + i % 2]
        examples.append((" ".join(ENGLISH[d] for d in digits), " ".join(GERMAN[d] for d in digits)))
    return examples


LINES = [f"{source}\t{target}" for source, target in pairs()]
# Line 3 has no target, 5 no tab, 9 and 10 more words than fit.
LINES[2:2] = ["nothing\t "]
LINES[4:4] = ["one eins"]
LINES[8:8] = ["one " * 12 + "\teins", "one\t" + "eins " * 12]


def config(folder, *, data=None, **changes):
    paths = (str(folder / "pairs.tsv"),)
    values = {"source": "pairs", "paths": paths, "validation_fraction": 0.1} | (data or {})
    return tiny.config(folder, architecture="encoder_decoder", data=values, **changes)


def full_config(folder):
    """Many options at once, and their data.

    Vocabularies of their own, that of the targets made larger than the tokenizer's; source vectors
    that are narrower than the model.
    """
    tiny.write(folder / "pairs.tsv", LINES)
    return config(
        folder,
        tokenizer={"joint": False},
        model={"vocab_size": 11, "tied_embeddings": False, "embedding_dim": 6},
        training={
            "runner": "pmap",
            "devices": 2,
            "label_smoothing": 0.1,
            "steps": 100,
            "eval_every": 50,
            "checkpoint_every": 50,
        },
        translation=TranslationConfig(beam_size=3, length_penalty=0.5, metrics_pairs=3),
    )


@pytest.fixture(scope="module")
def trained(translation_run):
    """The folder that a finished run is in."""
    return translation_run[0].parent


@pytest.fixture(scope="module")
def run(trained):
    return runs.open_run(trained / "run")


@pytest.fixture(scope="module")
def validation(trained):
    rows = json.loads((trained / "run" / "validation.json").read_text(encoding="utf-8"))
    return text.Pairs(*zip(*rows, strict=True))


@pytest.fixture(scope="module")
def evaluation(run):
    return run.evaluate()


def test_report_counts_what_was_dropped_and_validation_rows_are_stored(translation_run, validation):
    report = (
        "training on 36 pairs (44 pairs read, 40 kept; 1 empty (line 3), 1 misaligned (line 5), "
        "2 too long (lines 9, 10))\n"
        "validating on 4 pairs (4 pairs read, 4 kept)\n"
    )
    assert report in translation_run[1]
    assert set(zip(validation.sources, validation.targets, strict=True)) <= set(pairs())


def test_evaluation_is_the_one_of_training_with_the_lowest_loss(
    trained, run, evaluation, validation
):
    losses = tiny.figures(trained, "validation_loss")
    assert list(losses) == [50, 100] and run.step == min(losses, key=losses.get)
    training = tiny.figures(trained, "loss")
    assert list(training) == list(range(5, 101, 5)) and training[100] < 0.8 * training[5]
    assert evaluation.loss == pytest.approx(losses[run.step], rel=1e-5)
    assert evaluation.predicted == sum(len(t.split()) + 1 for t in validation.targets)
    assert evaluation.unit == "token"
    # Without the label smoothing of the training.
    likelihoods = run.log_likelihood(validation.targets, prompts=validation.sources)
    nats = -sum(likelihood.log_likelihood for likelihood in likelihoods)
    assert evaluation.loss * evaluation.predicted == pytest.approx(nats, rel=1e-5)
    num_bytes = sum(len(target.encode()) for target in validation.targets)
    bits = evaluation.loss * evaluation.predicted / math.log(2) / num_bytes
    assert evaluation.bits_per_byte == pytest.approx(bits)
    assert tiny.figures(trained, "bits_per_byte")[run.step] == pytest.approx(bits, rel=1e-5)


def test_evaluation_scores_are_those_of_the_translations(run, trained, evaluation, validation):
    translations = [best[0].text for best in run.translate(validation.sources)]
    assert run.config.samples.prompts == validation.sources[:3]
    assert run.sample(validation.sources[0]) == f"{validation.sources[0]}\n{translations[0]}"
    bleu = sacrebleu.metrics.BLEU(tokenize="13a").corpus_score(translations, [validation.targets])
    chrf = sacrebleu.metrics.CHRF().corpus_score(translations, [validation.targets])
    exact = np.mean([a == b for a, b in zip(translations, validation.targets, strict=True)])
    assert list(evaluation.scores) == ["bleu", "chrf", "exact"]
    assert evaluation.scores == pytest.approx(
        {"bleu": bleu.score, "chrf": chrf.score, "exact": exact}
    )
    assert chrf.score > 0
    assert [line.split(":")[0] for line in evaluation.details] == ["BLEU", "chrF"]
    assert "version" in evaluation.details[0] or "|v:" in evaluation.details[0]
    # Those of a training are of greedy translations of the first pairs.
    greedy = [best[0].text for best in run.translate(validation.sources[:3], beam_size=1)]
    scores = translation_scores(greedy, validation.targets[:3])
    assert tiny.figures(trained, "chrf")[run.step] == pytest.approx(scores.chrf)
    assert tiny.figures(trained, "bleu")[run.step] == pytest.approx(scores.bleu)


@pytest.mark.parametrize(
    ("options", "search"),
    [
        ({}, BeamSearchConfig(beam_size=3, length_penalty=0.5)),  # those of the config
        (
            {"num_best": 3, "length_penalty": 0.0},
            BeamSearchConfig(beam_size=3, num_best=3, length_penalty=0.0),
        ),
    ],
)
def test_translations_are_those_of_the_search_with_the_options_of_config_and_call(
    run, validation, options, search
):
    end = run.tokenizer.end_of_text
    expected = translate(
        run.module, run.params, [run.encode(source).tolist() for source in validation.sources],
        start_token=end, end_tokens=[end], search=search, max_new_tokens=12,
        vocab_size=run.tokenizer.vocab_size,
    )  # fmt: skip
    translations = run.translate(validation.sources, **options)
    assert translations == [
        [
            runs.Translation(run.decode(hypothesis.tokens), hypothesis.score, hypothesis.finished)
            for hypothesis in hypotheses
        ]
        for hypotheses in expected
    ]
    assert run.translate([]) == []


def test_sources_are_encoded_and_targets_decoded(run):
    source, target = run.tokenizers
    ids = [*map(target.words.get, ("drei", "eins")), target.end_of_text]
    assert run.decode(ids) == run.decode(np.array(ids)) == "drei eins"
    expected = [*map(source.words.get, ("two", "six")), source.end_of_text]
    assert run.encode("two six").tolist() == expected
    size = target.vocab_size  # the model's is larger
    with pytest.raises(DataError, match=f"less than vocab_size={size}, got {size}; decode with"):
        run.decode([size])


@pytest.mark.essential
def test_sentence_is_translated_as_it_would_be_alone(run, validation):
    together = run.translate(validation.sources)
    assert dict(run.translate_stream(validation.sources)) == dict(enumerate(together))
    for sentence, best in zip(validation.sources, together, strict=True):
        (alone,) = run.translate([f"  {sentence} "])
        assert alone[0].text == best[0].text
        assert alone[0].score == pytest.approx(best[0].score, rel=1e-4)


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        (["one two", " "], "text 1: a text must have 1 to max_len=12 tokens, got 0 for ' '; write"),
        (["one " * 12], r"got 13 for 'one one one one one \.\.\.'; shorten it"),
        ("one two", "texts must be a list of texts"),
    ],
)
def test_sentence_that_cannot_be_translated_is_refused(run, sentences, message):
    with pytest.raises(DataError, match=message):
        run.translate(sentences)


def test_evaluation_without_sacrebleu_says_what_to_install(run, evaluation, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    result = run.evaluate()
    assert result.scores == {"exact": evaluation.scores["exact"]}
    (line,) = result.details
    assert line.startswith("no BLEU and chrF: ") and 'pip install "jaxformer[eval]"' in line
    assert result.loss == evaluation.loss
    with pytest.raises(ConfigError, match="pip install"):  # of a training that measures it
        runs.train_run(full_config(tmp_path))
    assert not (tmp_path / "run").exists()


def test_run_in_parts_equals_the_run_at_once_and_guards_its_data(trained, tmp_path):
    """50 steps, then 100, give the bits of 100 steps; then a word of the data is another."""
    whole = full_config(tmp_path)
    tiny.train(tiny.change(whole, training={"steps": 50}))
    tiny.train(whole)
    expected, actual = (runs.open_run(folder / "run", step=100) for folder in (trained, tmp_path))
    jax.tree.map(np.testing.assert_array_equal, expected.params, actual.params)
    losses = tiny.figures(tmp_path, "loss")
    assert losses == tiny.figures(trained, "loss")

    with pytest.raises(ConfigError, match="step 100, got steps=50"):
        tiny.train(tiny.change(whole, training={"steps": 50}))
    tiny.write(tmp_path / "pairs.tsv", [line.replace("vier", "fear") for line in LINES])
    with pytest.raises(CheckpointError, match="was trained on another text"):
        tiny.train(whole)


def test_source_and_target_have_vocabularies_of_their_own(run):
    source, target = run.tokenizers
    assert set(source.words) == set(ENGLISH) and set(target.words) == set(GERMAN)
    assert (run.config.model.source_vocab_size, run.config.model.vocab_size) == (8, 11)
    # The width is that of the source's table; the target's is as wide as the model.
    shapes = {name: table.shape for name, table in run.params["embedding"].items()}
    assert shapes == {"embedding": (11, 16), "output_embedding": (11, 16)}
    source = {name: table.shape for name, table in run.params["source_embedding"].items()}
    assert source == {"embedding": (8, 6), "projection_kernel": (6, 16)}


def test_source_and_target_share_a_vocabulary_by_default(tmp_path):
    run = prepare(tmp_path)
    assert run.model.tokenizers[0] is run.model.tokenizers[1]
    assert set(run.model.tokenizers[0].words) == {*ENGLISH, *GERMAN}
    assert (run.config.model.source_vocab_size, run.config.model.vocab_size) == (None, 14)
    start_folder(tmp_path / "run", run.config, run.summary, run.save)
    assert not (tmp_path / "run" / "source_tokenizer.json").exists()
    opened = runs.Translator.load(tmp_path / "run", run.config)
    assert opened.tokenizers[0] is opened.tokenizers[1]
    expected = [*run.model.tokenizers[0].encode("two zwei").tolist(), 13]
    assert opened.encode("two zwei").tolist() == expected


def prepare(folder, **changes):
    tiny.write(folder / "pairs.tsv", LINES)
    return tiny.prepare(config(folder, **changes))


MODEL, SAMPLES = {"vocab_size": 13}, SamplesConfig(prompts=("one", "two " * 12))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": MODEL}, ConfigError, "model.vocab_size must be at least the tokenizer's 14, g"),
        (
            {"model": {"source_vocab_size": 7}, "tokenizer": {"joint": False}},
            ConfigError, "model.source_vocab_size must be at least the tokenizer's 8, got 7",
        ),
        ({"data": {"paths": ()}}, ConfigError, "'pairs' needs data.paths"),
        ({"samples": SAMPLES}, DataError, "samples.prompts has 'two two.*got 13"),
    ],
)  # fmt: skip
def test_what_cannot_be_prepared_is_refused(tmp_path, changes, error, message):
    with pytest.raises(error, match=message):
        prepare(tmp_path, **changes)


def test_validation_pairs_longer_than_any_trained_on_are_evaluated_too(tmp_path):
    tiny.write(tmp_path / "pairs.tsv", ["one\teins", "two\tzwei"])
    validation = tiny.write(tmp_path / "validation.tsv", ["one two one\teins zwei eins drei"])
    small = config(
        tmp_path,
        data={"validation_paths": (validation,), "validation_fraction": 0.1},
        training={"batch_tokens": 6},
    )
    data = tiny.prepare(small).training_data(PmapRunner(jax.local_devices()[:2]))
    assert [batch["labels"].shape for batch in data.validation()] == [(2, 5)]


def test_files_to_hold_out_are_reported_however_often_they_are_encoded(tmp_path):
    rows = [LINES[0], "ten\tzehn", "\tnichts", "one " * 40 + "\teins"]
    validation = tiny.write(tmp_path / "validation.tsv", rows)
    tiny.write(tmp_path / "pairs.tsv", LINES)
    held_out = config(tmp_path, data={"validation_paths": (validation,)})
    task, lines = tiny.logged_of_data(held_out)
    assert task.validation.rows.targets == (pairs()[0][1], "zehn")
    counts = "4 pairs read, 2 kept; 1 empty (line 3), 1 too long (line 4)"
    assert lines[1:] == [f"validating on 2 pairs ({counts})"]
    split = type(task).read(task.config)
    again = [str(task.with_data(split).validation.counts) for _ in range(2)]
    assert again == [counts] * 2
