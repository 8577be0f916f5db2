"""Runs of an encoder-decoder: one tiny training, and what is refused before there is any."""

import dataclasses
import functools
import json
import math
import sys

import jax
import numpy as np
import pytest
import sacrebleu

from jaxformer import runs, text
from jaxformer.config import (
    SamplesConfig,
    SyntheticConfig,
    TranslationConfig,
)
from jaxformer.errors import CheckpointError, ConfigError, DataError
from jaxformer.models import EncoderDecoder
from jaxformer.runs.data.summary import load_summary
from jaxformer.runs.folder.files import start_folder
from jaxformer.training import PmapRunner, SingleRunner
from tests.runs import tiny

ENGLISH = ["one", "two", "three", "four", "five", "six"]
GERMAN = ["eins", "zwei", "drei", "vier", "fünf", "sechs"]


def pairs(count=40):
    """Numbers in English and German, each sentence once."""
    found = []
    for i in range(count):
        digits = [i % 6, i // 6 % 6, i // 36, i % 5][: 3 + i % 2]
        found.append((" ".join(ENGLISH[d] for d in digits), " ".join(GERMAN[d] for d in digits)))
    return found


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
        model={"vocab_size": 11, "tied_embeddings": False, "embedding_dim": 5},
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


def test_report_counts_what_was_dropped_and_where(translation_run):
    report = (
        "training on 36 pairs (44 pairs read, 40 kept; 1 empty (line 3), 1 misaligned (line 5), "
        "2 too long (lines 9, 10))\n"
        "validating on 4 pairs (4 pairs read, 4 kept)\n"
    )
    assert report in translation_run[1]


def test_folder_has_all_that_the_run_needs(trained, validation):
    folder = trained / "run"
    assert {path.name for path in folder.iterdir()} == {
        "config.toml", "tokenizer.json", "source_tokenizer.json", "validation.json", "data.json",
        "metrics.jsonl", "tensorboard", "checkpoints", "samples.txt", "loss.png",
        "manifest.json", "lock",
    }  # fmt: skip
    assert set(zip(validation.sources, validation.targets, strict=True)) <= set(pairs())


def test_summary_counts_pairs_and_target_tokens(trained, run, validation):
    summary = load_summary(trained / "run")
    kept = [pair for pair in pairs() if pair[0] not in validation.sources]
    assert summary.documents == len(kept)
    assert summary.train_tokens == sum(len(target.split()) + 1 for _, target in kept)
    assert summary.validation_tokens == sum(len(t.split()) + 1 for t in validation.targets)


def test_training_learns(trained):
    losses = tiny.figures(trained, "loss")
    assert list(losses) == list(range(5, 101, 5))
    assert losses[100] < 0.8 * losses[5]


def test_samples_are_the_first_validation_sources(run, validation):
    assert run.config.samples.prompts == validation.sources[:3]
    best = run.translate([validation.sources[0]])[0][0].text
    shown = run.sample(validation.sources[0])
    assert shown == f"{validation.sources[0]}\n{best}"


def test_evaluation_is_the_one_of_training_with_the_lowest_loss(
    trained, run, evaluation, validation
):
    losses = tiny.figures(trained, "validation_loss")
    assert list(losses) == [50, 100] and run.step == min(losses, key=losses.get)
    assert evaluation.loss == pytest.approx(losses[run.step], rel=1e-5)
    assert evaluation.predicted == sum(len(t.split()) + 1 for t in validation.targets)
    assert evaluation.unit == "token"
    num_bytes = sum(len(target.encode()) for target in validation.targets)
    bits = evaluation.loss * evaluation.predicted / math.log(2) / num_bytes
    assert evaluation.bits_per_byte == pytest.approx(bits)
    assert tiny.figures(trained, "bits_per_byte")[run.step] == pytest.approx(bits, rel=1e-5)


def test_evaluation_scores_are_those_of_the_translations(run, evaluation, validation):
    translations = [best[0].text for best in run.translate(validation.sources)]
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


def test_training_measures_greedy_translations_of_the_first_pairs(trained, run, validation):
    found = {name: tiny.figures(trained, name) for name in ("bleu", "chrf", "exact")}
    assert all(list(steps) == [50, 100] for steps in found.values())
    greedy = [best[0].text for best in run.translate(validation.sources[:3], beam_size=1)]
    scores = text.translation_scores(greedy, validation.targets[:3])
    assert found["chrf"][run.step] == pytest.approx(scores.chrf)
    assert found["bleu"][run.step] == pytest.approx(scores.bleu)
    assert found["exact"][run.step] == text.exact_matches(greedy, validation.targets[:3])


def logits_of(run, sentence, written):
    """Logits `[written, V]` by a whole forward pass over a translation: no cache, no search."""
    sources, targets = np.zeros((1, 12), np.int32), np.zeros((1, 12), np.int32)
    source = run.encode(sentence)
    sources[0, : source.size] = source
    targets[0, : len(written)] = [run.tokenizer.end_of_text, *written[:-1]]
    logits = forward(run.config.model, run.params, sources, targets, np.int32([source.size]))
    return np.asarray(logits)[0, : len(written), : run.tokenizer.vocab_size]


@functools.partial(jax.jit, static_argnums=0)
def forward(model, params, sources, targets, lengths):
    model = EncoderDecoder(model)
    return model.apply({"params": params}, sources, targets, source_lengths=lengths).logits


def test_greedy_translation_takes_the_likeliest_token_each_time(run, validation):
    tokenizer = run.tokenizer
    greedy = run.translate(validation.sources[:3], beam_size=1)
    for sentence, (best,) in zip(validation.sources, greedy, strict=False):
        written = tokenizer.encode(best.text).tolist() + [tokenizer.end_of_text] * best.finished
        assert logits_of(run, sentence, written).argmax(-1).tolist() == written


def test_scores_are_log_probabilities_by_length_and_the_best_come_first(run, validation):
    tokenizer = run.tokenizer
    found = run.translate(validation.sources, num_best=3, length_penalty=0.0)
    for sentence, several in zip(validation.sources, found, strict=True):
        scores = [one.score for one in several]
        assert len({one.text for one in several}) == 3 and scores == sorted(scores, reverse=True)
        for one in several:
            written = tokenizer.encode(one.text).tolist() + [tokenizer.end_of_text] * one.finished
            nats = jax.nn.log_softmax(logits_of(run, sentence, written))
            score = float(nats[np.arange(len(written)), np.array(written)].sum())
            assert one.score == pytest.approx(score, abs=1e-4)


def test_options_of_the_search_are_the_configs_when_not_given(run, validation):
    given = run.translate(validation.sources, beam_size=3, length_penalty=0.5)
    assert run.translate(validation.sources) == given
    other = run.translate(validation.sources, num_best=3, length_penalty=0.0)
    assert [best[0].score for best in other] != [best[0].score for best in given]


def test_translations_are_in_the_order_of_the_sentences(run, validation):
    forward = run.translate(validation.sources)
    assert run.translate(validation.sources[::-1])[::-1] == forward
    streamed = dict(run.translate_stream(validation.sources))
    assert [streamed[i] for i in range(4)] == forward


@pytest.mark.essential
def test_sentence_is_translated_as_it_would_be_alone(run, validation):
    together = run.translate(validation.sources)
    for sentence, best in zip(validation.sources, together, strict=True):
        (alone,) = run.translate([f"  {sentence} "])
        assert alone[0].text == best[0].text
        assert alone[0].score == pytest.approx(best[0].score, rel=1e-4)


def test_one_sentence_in_place_of_a_list_is_refused(run, validation):
    with pytest.raises(DataError, match="texts must be a list of texts"):
        run.translate(validation.sources[0])


def test_sources_are_encoded_and_targets_decoded(run):
    words = run.tokenizers[1].words
    ids = [words["drei"], words["eins"], run.tokenizers[1].end_of_text]
    assert run.decode(ids) == run.decode(np.array(ids)) == "drei eins"
    assert run.encode("two six")[-1] == run.tokenizers[0].end_of_text
    with pytest.raises(DataError, match="less than vocab_size=8, got 8; decode with"):
        run.decode([8])


def test_nothing_to_translate_gives_nothing(run):
    assert run.translate([]) == []


@pytest.mark.parametrize(
    ("sentence", "message"),
    [(" ", "must have text"), ("one " * 12, "at most max_len=12 tokens.*got 13 for 'one one")],
)
def test_sentence_that_cannot_be_translated_is_refused(run, sentence, message):
    with pytest.raises(DataError, match=message):
        run.translate(["one two", sentence])


def test_evaluation_without_sacrebleu_says_what_to_install(run, evaluation, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    result = run.evaluate()
    assert result.scores == {"exact": evaluation.scores["exact"]}
    (line,) = result.details
    assert line.startswith("no BLEU and chrF: ") and 'pip install "jaxformer[eval]"' in line
    assert result.loss == evaluation.loss


def test_training_that_needs_sacrebleu_is_refused_without_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ConfigError, match="pip install"):
        runs.train_run(full_config(tmp_path))
    assert not (tmp_path / "run").exists()


def test_search_that_could_not_be_scored_is_refused_before_training(tmp_path):
    data = {"source": "sort"}
    made = tiny.config(
        tmp_path, architecture="encoder_decoder", data=data, model={"max_len": 5_000},
        translation=TranslationConfig(length_penalty=10.0),
    )  # fmt: skip
    with pytest.raises(ConfigError, match="must be within float32, got 5000 .. 10.0"):
        runs.train_run(made)
    assert not (tmp_path / "run").exists()


def test_run_in_parts_equals_the_run_at_once_and_guards_its_data(trained, tmp_path):
    """50 steps, then 100, give the bits of 100 steps; then a word of the data is another."""
    whole = full_config(tmp_path)
    tiny.train(tiny.change(whole, training={"steps": 50}))
    tiny.train(whole)
    one, two = (runs.open_run(folder / "run", step=100) for folder in (trained, tmp_path))
    jax.tree.map(np.testing.assert_array_equal, one.params, two.params)
    losses = tiny.figures(tmp_path, "loss")
    assert losses == tiny.figures(trained, "loss")

    with pytest.raises(ConfigError, match="step 100, got steps=50"):
        tiny.train(tiny.change(whole, training={"steps": 50}))
    with pytest.raises(CheckpointError, match="label_smoothing: 0.1 there, 0.2 now"):
        tiny.train(tiny.change(whole, training={"label_smoothing": 0.2}))
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
    assert source == {"embedding": (8, 5), "projection_kernel": (5, 16)}


def test_source_and_target_share_a_vocabulary_by_default(tmp_path):
    run = prepare(tmp_path)
    assert run.tokenizers[0] is run.tokenizers[1]
    assert set(run.tokenizers[0].words) == {*ENGLISH, *GERMAN}
    assert (run.config.model.source_vocab_size, run.config.model.vocab_size) == (None, 14)
    start_folder(tmp_path / "run", run.config, run.summary, run.save)
    assert not (tmp_path / "run" / "source_tokenizer.json").exists()
    opened = runs.Translator.load(tmp_path / "run", run.config)
    assert opened.tokenizers[0] is opened.tokenizers[1]
    expected = [*run.tokenizers[0].encode("two zwei").tolist(), 13]
    assert opened.encode("two zwei").tolist() == expected


def prepare(folder, **changes):
    tiny.write(folder / "pairs.tsv", LINES)
    return tiny.prepare(config(folder, **changes))


def refused(folder, error, message, **changes):
    with pytest.raises(error, match=message):
        prepare(folder, **changes)


def test_vocabulary_must_hold_the_tokenizers(tmp_path):
    refused(
        tmp_path, ConfigError, "model.vocab_size must be at least the tokenizer's 14, got 13",
        model={"vocab_size": 13},
    )  # fmt: skip
    refused(
        tmp_path, ConfigError, "model.source_vocab_size must be at least the tokenizer's 8, got 7",
        model={"source_vocab_size": 7}, tokenizer={"joint": False},
    )  # fmt: skip


def test_files_must_be_there_and_aligned(tmp_path):
    english = tiny.write(tmp_path / "a.en", ["one", "two", "three"])
    german = tiny.write(tmp_path / "a.de", ["eins", "zwei"])
    missing = str(tmp_path / "a.fr")
    refused(tmp_path, ConfigError, "'pairs' needs data.paths", data={"paths": ()})
    refused(tmp_path, DataError, "a.fr': No such file", data={"paths": (english, missing)})
    refused(
        tmp_path, DataError, "got only 2 in '.*a.de'",
        data={"paths": (english, german)},
    )  # fmt: skip


def test_samples_that_cannot_be_translated_are_refused_before_training(tmp_path):
    samples = SamplesConfig(prompts=("one", "two " * 12))
    refused(tmp_path, DataError, "samples.prompts has 'two two.*got 13", samples=samples)


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


def test_files_to_hold_out_are_reported(tmp_path):
    validation = tiny.write(tmp_path / "validation.tsv", [LINES[0], "ten\tzehn", "\tnichts"])
    tiny.write(tmp_path / "pairs.tsv", LINES)
    held_out = config(tmp_path, data={"validation_paths": (validation,)})
    task, lines = tiny.logged_of_data(held_out)
    assert task.validation.rows.targets == (pairs()[0][1], "zehn")
    assert lines[1:] == ["validating on 2 pairs (3 pairs read, 2 kept; 1 empty (line 3))"]


def test_symbols_are_made_by_the_config(tmp_path):
    task = SyntheticConfig(num_symbols=5, min_len=2, max_len=3, num_pairs=30, num_validation=7)
    paths = {"source": "reverse", "paths": (), "synthetic": task}
    run = tiny.prepare(tiny.config(tmp_path, architecture="encoder_decoder", data=paths))
    assert len(run.train.rows) == 30 and len(run.validation.rows) == 7
    for source, target in zip(
        run.validation.rows.sources, run.validation.rows.targets, strict=True
    ):
        assert target.split() == source.split()[::-1] and 2 <= len(target.split()) <= 3
    other = dataclasses.replace(run.config, seed=1)
    assert tiny.prepare(other).summary.fingerprint != run.summary.fingerprint


def test_phrasebook_pairs_english_with_kannada(tmp_path):
    data = {"source": "phrasebook", "paths": ()}
    run = tiny.prepare(tiny.config(tmp_path, architecture="encoder_decoder", data=data))
    book = text.load_phrasebook()
    english = [phrase.english for phrase in book.validation]
    assert set(run.validation.rows.sources) <= set(english)
    assert all(ord(max(target)) > 0x0C80 for target in run.validation.rows.targets[:20])


def test_label_smoothing_is_in_the_training_loss_alone(trained, run, evaluation, tmp_path):
    """By the formula; evaluations, also those of a training with smoothing, are without."""
    smoother = tiny.change(full_config(tmp_path), training={"label_smoothing": 0.3})
    prepared = tiny.prepare(smoother)
    (batch,) = prepared.training_data(SingleRunner()).validation()

    def total(loss):
        return float(jax.jit(lambda params: loss(params, batch, None)[0])(run.params))

    def all_logits(params):
        arguments = {name: array for name, array in batch.items() if name != "labels"}
        return EncoderDecoder(run.config.model).apply({"params": params}, **arguments).logits

    logits = np.asarray(jax.jit(all_logits)(run.params), np.float64)
    surprise = np.logaddexp.reduce(logits, axis=-1, keepdims=True) - logits
    counted = batch["labels"] >= 0
    own = np.take_along_axis(surprise, batch["labels"].clip(0)[..., None], -1)[..., 0]
    nats, spread = own[counted].sum(), surprise.mean(-1)[counted].sum()
    assert spread > 1.1 * nats
    training = prepared.model.loss(0.3)
    assert total(training) == pytest.approx(0.7 * nats + 0.3 * spread, rel=1e-5)
    assert evaluation.loss * evaluation.predicted == pytest.approx(nats, rel=1e-5)


def test_translator_starts_from_another_with_both_tokenizers(trained, run, tmp_path):
    """Whose data are gone: all is in the run."""
    paths = (tiny.write(tmp_path / "pairs.tsv", LINES),)
    made = dataclasses.replace(
        run.config, out=str(tmp_path / "run"), init_from=str(trained / "run"),
        data=dataclasses.replace(run.config.data, paths=paths),
    )  # fmt: skip
    result = runs.train_run(tiny.standing_still(made))
    tiny.assert_stood_still(run.params, result.params)
    assert result.evaluation.loss == pytest.approx(run.evaluate().loss, rel=1e-6)
