"""Log-likelihoods and hidden states, against plain calls of the models, a text at a time."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from jaxformer import runs, text
from jaxformer.errors import DataError
from jaxformer.models import Decoder, EncoderDecoder, MaskedLanguageModel, SequenceClassifier
from tests.runs import tiny

MAX_LEN = 40
# More than go into a batch, of lengths that are padded to 16, 32 and 40.
TEXTS = ["xyz"[: 1 + i % 2] + chr(97 + i % 7) * (1 + i % 3) for i in range(30)]
TEXTS += ["q" * 17, "a" * 31, "b" * 33, "ab" * 20, "ab" * 20 + "c"]


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    """One that was not trained, of bytes, whose weights are large enough to tell texts apart."""
    return tiny.untrained_language_model(
        tmp_path_factory.mktemp("language_model"),
        vocab_size=300, layer_execution="scan", max_len=MAX_LEN, init_std=0.3,
    )  # fmt: skip


@functools.cache
def compiled(model):
    return jax.jit(model.apply)


def log_probabilities(logits, labels):
    """Of labels `[T]` by logits `[T, V]`, in float64."""
    logits = np.asarray(logits, np.float64)
    scores = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    return scores[np.arange(len(labels)), labels]


def nats_of(run, ids):
    """Log-probabilities of all tokens but the first, by the model on this sequence alone."""
    logits = compiled(Decoder(run.config.model))({"params": run.params}, ids[None, :-1]).logits[0]
    return log_probabilities(logits, ids[1:])


def test_log_likelihood_is_that_of_the_model_on_each_text_alone(language_model):
    likelihoods = language_model.log_likelihood(TEXTS)
    for document, (nats, count) in zip(TEXTS, likelihoods, strict=True):
        expected = nats_of(
            language_model, np.frombuffer(document.encode(), np.uint8).astype(np.int32)
        )
        assert count == len(expected) == len(document) - 1
        assert nats == pytest.approx(expected.sum(), rel=1e-4)


@pytest.mark.parametrize("scheme", ["first", "always"])
def test_text_behind_a_prompt_gets_no_space_before_it(language_model, scheme):
    pieces = [(piece, -1.0) for piece in ["<unk>", "▁", "▁abc", "abc", "!", "▁!"]]
    library = tokenizers.Tokenizer(models.Unigram(pieces, 0))
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    model = dataclasses.replace(language_model, tokenizers=(text.Tokenizer(library),))
    texts, prompts = ["!", " abc", "abc!"], ["abc", "abc", "!"]
    likelihoods = model.log_likelihood(texts, prompts=prompts)
    for ids, (nats, count) in zip([[2, 4], [2, 2], [5, 3, 4]], likelihoods, strict=True):
        expected = nats_of(language_model, np.array(ids, np.int32))
        assert count == len(ids) - 1 and nats == pytest.approx(expected.sum(), rel=1e-4)


@pytest.mark.essential
def test_log_likelihood_behind_a_prompt_counts_the_text_alone(language_model):
    texts, prompts = ["abc", "d", "ಕ"], ["x" * 20, "yz", "q"]
    likelihoods = language_model.log_likelihood(texts, prompts=prompts)
    for continuation, prompt, (nats, count) in zip(texts, prompts, likelihoods, strict=True):
        ids = np.frombuffer((prompt + continuation).encode(), np.uint8).astype(np.int32)
        expected = nats_of(language_model, ids)[-len(continuation.encode()) :]
        assert count == len(expected)
        assert nats == pytest.approx(expected.sum(), rel=1e-4)


def test_log_likelihood_of_a_translation_is_of_the_target_and_its_end(translation_run):
    run = runs.open_run(translation_run[0])
    sources = ["one two three", "six", "one two three four five six one two"]
    targets = ["eins zwei drei", "sechs fünf vier", "eins"]
    model, (source_tokenizer, tokenizer) = EncoderDecoder(run.config.model), run.tokenizers
    end = tokenizer.end_of_text
    for source, target, (nats, count) in zip(
        sources, targets, run.log_likelihood(targets, prompts=sources), strict=True
    ):
        ids = tokenizer.encode(target).tolist()
        read = [*source_tokenizer.encode(source).tolist(), source_tokenizer.end_of_text]
        output = compiled(model)({"params": run.params}, np.array([read]), np.array([[end, *ids]]))
        expected = log_probabilities(output.logits[0], [*ids, end])
        assert count == len(ids) + 1
        assert nats == pytest.approx(expected.sum(), rel=1e-4)


@pytest.mark.parametrize(
    ("texts", "prompts", "error", "message"),
    [
        (["ab", "c" * 42], None, DataError, "text 1: .* 2 to max_len . 1 = 41 tokens.*got 42"),
        (["ab", "c"], None, DataError, "text 1: .*got 1 for 'c'; write more, or give a prompt"),
        (["ab", "c"], ["d" * 41] * 2, DataError, "text 0: .*got 43 for 'ab'; shorten it"),
        ([""], ["a"], DataError, "text 0: a text after a prompt must have tokens"),
    ],
)  # fmt: skip
def test_texts_that_cannot_be_scored_are_refused(language_model, texts, prompts, error, message):
    with pytest.raises(error, match=message):
        language_model.log_likelihood(texts, prompts=prompts)


def test_target_that_cannot_be_scored_is_refused(translation_run):
    run = runs.open_run(translation_run[0])
    with pytest.raises(DataError, match="text 1: a target must have 1 to 11 tokens, got 12"):
        run.log_likelihood(["eins", "eins " * 12], prompts=["one", "one"])


def assert_states_are_those_of(run, texts, alone):
    """`alone` computes `[T, D]` of one text by a plain call."""
    for document, states in zip(texts, run.hidden_states(texts), strict=True):
        expected = np.asarray(alone(run.encode(document)[None]))[0]
        assert states.dtype == np.float32 and states.shape == expected.shape
        np.testing.assert_allclose(states, expected, atol=2e-5)


def test_hidden_states_are_those_of_the_model_on_each_text_alone(language_model):
    variables = {"params": language_model.params}
    decoder = Decoder(language_model.config.model)
    states = jax.jit(lambda ids: decoder.apply(variables, ids).hidden)
    assert_states_are_those_of(language_model, TEXTS[:-1], states)


def test_hidden_states_are_those_of_encoders(masked_run, classification_run, translation_run):
    for (folder, _), kind, texts in (
        (masked_run, MaskedLanguageModel, ["the [MASK] sat", "the cat sat on the mat"]),
        (classification_run, SequenceClassifier, ["cat dog cat", "moon"]),
    ):
        run = runs.open_run(folder)
        forward, variables = compiled(kind(run.config.model)), {"params": run.params}
        assert_states_are_those_of(run, texts, lambda ids: forward(variables, ids).hidden)  # noqa: B023
    run = runs.open_run(translation_run[0])
    model = EncoderDecoder(run.config.model)
    encode = jax.jit(
        lambda ids: model.apply({"params": run.params}, ids, method=EncoderDecoder.encode).hidden
    )
    assert_states_are_those_of(run, ["one two three", "six"], encode)


def test_too_long_text_is_refused_with_its_index(language_model):
    with pytest.raises(DataError, match="text 2: a text must have 1 to max_len=40 tokens, got 41"):
        language_model.hidden_states(["a", "b", "c" * 41])


def test_nothing_to_score_gives_nothing(language_model):
    assert language_model.log_likelihood([]) == language_model.hidden_states([]) == []
