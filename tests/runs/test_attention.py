"""Where the tokens of a text look, by runs of every kind."""

import jax
import numpy as np
import pytest

from jaxformer import runs
from jaxformer.inference import Hypothesis
from jaxformer.models import Decoder, EncoderDecoder, MaskedLanguageModel, SequenceClassifier
from jaxformer.viz import attention_page
from tests.runs import tiny


def assert_same(attention_map, padded):
    """Compares a map with the weights of a padded batch, the first row of which it is of."""
    weights = np.asarray(attention_map.weights)
    *_, queries, keys = weights.shape
    expected = np.asarray(padded)[:, 0, :, :queries, :keys]
    assert weights.shape == expected.shape
    assert (queries, keys) == (len(attention_map.query_tokens), len(attention_map.key_tokens))
    np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-5)


def padded(ids, max_len):
    """Two rows, the tokens in the first."""
    tokens = np.zeros((2, max_len), np.int32)
    tokens[0, : len(ids)] = ids
    return tokens, np.array([len(ids), 1], np.int32)


def apply(model, run, *tokens, **lengths):
    variables = {"params": run.params}
    return jax.jit(model.apply, static_argnames="return_weights")(
        variables, *tokens, **lengths, return_weights=True
    )


def test_encoders_look_at_the_tokens_of_the_text(classification_run, masked_run):
    for (folder, _), model, sentence in [
        (classification_run, SequenceClassifier, "cat dog cat"),
        (masked_run, MaskedLanguageModel, "the [MASK] sat"),
    ]:
        run = runs.open_run(folder)
        (attention_map,) = run.attention(sentence)
        tokens, lengths = padded(run.encode(sentence), run.config.model.max_len)
        output = apply(model(run.config.model), run, tokens, lengths=lengths)
        assert attention_map.name == "encoder self-attention"
        assert_same(attention_map, output.weights.self_attention)


def test_translator_looks_at_source_and_target(translation_run):
    run = runs.open_run(translation_run[0])
    source, target = "one two three", "eins zwei drei vier"
    cross, encoder, decoder = run.attention(source, target=target)
    ids = [run.tokenizers[1].end_of_text, *run.tokenizers[1].encode(target)]
    tokens, lengths = padded(ids, run.config.model.max_len)
    sources, source_lengths = padded(run.encode(source), run.config.model.max_len)
    output = apply(
        EncoderDecoder(run.config.model), run, sources, tokens,
        source_lengths=source_lengths, lengths=lengths,
    )  # fmt: skip
    assert_same(cross, output.decoder_weights.cross_attention)
    assert_same(encoder, output.encoder_weights)
    assert_same(decoder, output.decoder_weights.self_attention)
    assert cross.key_tokens == encoder.query_tokens == ["one", "two", "three", "<|endoftext|>"]
    assert cross.query_tokens == decoder.key_tokens == ["<|endoftext|>", *target.split()]
    assert cross.next_tokens == decoder.next_tokens == [*target.split(), "<|endoftext|>"]
    assert encoder.next_tokens is None


@pytest.mark.parametrize(("count", "finished"), [(12, False), (11, True)])
def test_decoder_reads_its_best_translation_as_far_as_it_read_it(
    translation_run, monkeypatch, count, finished
):
    """The last of the most tokens that there can be was written, but not read."""
    run = runs.open_run(translation_run[0])
    words = np.arange(1, count + 1, dtype=np.int32) % 6 + 1
    best = Hypothesis(words, 0.0, run.tokenizers[1].end_of_text if finished else None)
    monkeypatch.setattr(runs.Translator, "search", lambda *_: iter([(0, [best])]))
    cross, _, _ = run.attention("one two")
    written = run.tokenizers[1].token_texts(words)
    assert cross.query_tokens == ["<|endoftext|>", *written[:11]]
    assert cross.next_tokens == [*written, "<|endoftext|>"][:12]


@pytest.fixture(scope="module")
def language_model_run(tmp_path_factory):
    """One that was not trained, of bytes."""
    return tiny.untrained_language_model(tmp_path_factory.mktemp("language_model"))


@pytest.mark.essential
def test_language_model_looks_back_alone(language_model_run):
    run, sentence = language_model_run, "ಕ a\n"
    (attention_map,) = run.attention(sentence)
    tokens, lengths = padded(list(sentence.encode()), run.config.model.max_len)
    output = apply(Decoder(run.config.model), run, tokens, lengths=lengths)
    assert attention_map.name == "decoder self-attention"
    assert_same(attention_map, output.weights.self_attention)
    assert np.triu(attention_map.weights, 1).max() == 0
    assert attention_map.query_tokens == [r"\xe0", r"\xb2", r"\x95", " ", "a", "\n"]
    likeliest = run.tokenizer.token_texts(output.logits[0, 5].argmax()[None])
    assert attention_map.next_tokens == [*attention_map.query_tokens[1:], *likeliest]
    assert attention_page([attention_map])  # which checks the weights
