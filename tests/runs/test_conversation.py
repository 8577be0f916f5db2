"""Runs on conversations: trained on the answers, opened, and asked."""

import json

import jax
import numpy as np
import pytest

from jaxformer import runs
from jaxformer.config import SamplesConfig, SamplingConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.inference import generate
from tests.runs import tiny

WORDS = "one two three four five six".split()
RNG = np.random.default_rng(0)
QUESTIONS = list(dict.fromkeys(" ".join(RNG.choice(WORDS, 2)) for _ in range(60)))


def messages(question):
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": question.split()[0]},
    ]


def experiment(folder, **changes):
    lines = [json.dumps({"messages": messages(question)}) for question in QUESTIONS]
    path = tiny.write(folder / "chat.jsonl", lines)
    data = {"source": "conversations", "paths": (path,), "validation_fraction": 0.2,
            "cache": str(folder / "cache")} | changes.pop("data", {})  # fmt: skip
    training = {"runner": "pmap", "devices": 2, "steps": 4, "eval_every": 4, "batch_size": 4}
    changes["training"] = training | changes.get("training", {})
    changes["model"] = {"dropout_rate": 0.0, "max_len": 24} | changes.get("model", {})
    return tiny.config(folder, architecture="decoder", data=data, **changes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of conversations in its folder, and what was said of the data."""
    folder = tmp_path_factory.mktemp("chat")
    return folder, tiny.train(experiment(folder))


@pytest.mark.essential
def test_run_is_trained_and_opened(trained):
    folder, reports = trained
    assert f"({len(QUESTIONS)} conversations read, " in reports[0]
    run = runs.open_run(folder / "run")
    assert isinstance(run, runs.ChatModel)
    evaluation, validation = tiny.evaluated_as_trained(folder, run), tiny.validation_of(run)
    assert list(tiny.figures(folder, "bits_per_byte")) == [4]
    # The word of each answer, and its end.
    assert evaluation.predicted == 2 * len(validation.rows)
    assert len(run.config.samples.prompts) == 3
    assert set(run.config.samples.prompts) <= set(validation.rows.prompts)


def test_answers_are_what_the_model_finds_likeliest_behind_the_question(trained):
    run = runs.open_run(trained[0] / "run")
    question = "two six"
    ids = run.template.encode_prompt(messages(question)[:1]).tolist()
    (expected,) = generate(
        run.module, run.params, [ids], max_new_tokens=3, rng=jax.random.key(0),
        sampling=SamplingConfig(temperature=0.0), vocab_size=run.tokenizer.vocab_size,
        stop_tokens=(run.template.end_of_answer,),
    )  # fmt: skip
    options = {"max_new_tokens": 3, "temperature": 0.0}
    answer = run.generate(question, **options)
    assert answer == run.decode(expected)
    assert run.chat(messages(question)[:1], **options) == answer
    # What was said before counts.
    before = run.encode_messages([*messages("one one"), *messages(question)[:1]])
    assert len(before) > len(run.encode_messages(messages(question)[:1]))
    with pytest.raises(DataError, match="needs a message to answer, got none"):
        run.chat([])
    with pytest.raises(DataError, match="message 0 must have text under 'role', got None"):
        run.chat([{"content": "one"}])
    with pytest.raises(ConfigError, match="is a chat model, but this needs an encoder-decoder"):
        run.require(runs.Translator)


@pytest.mark.parametrize("kind", ["bpe", "byte", "word"])
def test_export_has_the_template_of_the_run(tmp_path, kind):
    tokenizer = {"kind": kind} | ({"vocab_size": 300} if kind == "bpe" else {})
    config = experiment(tmp_path, tokenizer=tokenizer, model={"max_len": 80})
    model = runs.prepare_task(config).model
    template = model.to_huggingface().chat_template
    conversation = [*messages("one two"), *messages(" two\n\nsix")]
    for chat in (conversation, conversation[:3]):
        (whole, _), *_ = model.template.encode([chat])
        ids = template.encode(model.tokenizer, chat, add_generation_prompt=False)
        assert ids.tolist() == whole.tolist()
        assert template.encode(model.tokenizer, chat).tolist() == model.encode_messages(chat)


def test_export_has_no_template_that_makes_other_tokens(tmp_path):
    changes = {"data": {"template": "plain"}, "tokenizer": {"kind": "byte"}}
    config = experiment(tmp_path, model={"max_len": 80}, **changes)
    assert runs.prepare_task(config).model.to_huggingface().chat_template is None


def test_tokenizers_know_the_text_of_the_template(tmp_path):
    for kind, template in (("character", "plain"), ("word", "chatml")):
        config = experiment(
            tmp_path, tokenizer={"kind": kind}, data={"template": template}, model={"max_len": 80}
        )
        task = runs.prepare_task(config)
        ids = task.model.template.encode_prompt(messages("one two")[:1])
        assert task.tokenizer.unknown is None or task.tokenizer.unknown not in ids


def test_run_starts_from_a_language_model_with_the_plain_template(tmp_path):
    (tmp_path / "text.txt").write_text("user assistant # : one two three four five six " * 20)
    base = tiny.config(
        tmp_path, architecture="decoder", training={"steps": 1, "eval_every": 1},
        data={"source": "files", "paths": (str(tmp_path / "text.txt"),)},
        model={"dropout_rate": 0.0, "max_len": 24},
    )  # fmt: skip
    runs.train_run(base)
    (tmp_path / "chat").mkdir()
    options = {"init_from": str(tmp_path / "run"), "training": {"steps": 1, "eval_every": 1}}
    with pytest.raises(DataError, match="'chatml' needs a tokenizer with .*'plain'"):
        runs.prepare_task(experiment(tmp_path / "chat", **options))
    config = tiny.standing_still(
        experiment(tmp_path / "chat", data={"template": "plain"}, **options)
    )
    tiny.train(config)
    params = [runs.open_run(folder).params for folder in (tmp_path / "run", config.out)]
    tiny.assert_stood_still(*params)


def test_prompts_of_samples_leave_room_for_what_is_asked_of_them(tmp_path):
    samples = SamplesConfig(max_new_tokens=19)
    task = runs.prepare_task(experiment(tmp_path, samples=samples, model={"max_len": 24}))
    assert task.config.samples.prompts == ()  # each has 6 tokens
    samples = SamplesConfig(max_new_tokens=15)
    task = runs.prepare_task(experiment(tmp_path, samples=samples, model={"max_len": 24}))
    assert len(task.config.samples.prompts) == 3


def test_vocabulary_must_have_room_for_the_template(tmp_path):
    config = experiment(tmp_path, tokenizer={"kind": "bpe", "vocab_size": 258})
    with pytest.raises(DataError, match="must be at least 257, for the 256 bytes .* got 256"):
        runs.prepare_task(config)
