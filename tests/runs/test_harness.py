"""lm-evaluation-harness gives models the figures of the same weights in transformers."""

import dataclasses
import json
import sys

import numpy as np
import pytest

from jaxformer import runs
from jaxformer.cli import main
from jaxformer.errors import ConfigError, DataError
from jaxformer.runs import harness
from tests.runs import pretrained_folders

WORDS = pretrained_folders.WORDS
TASKS = {
    "choices": """
output_type: multiple_choice
doc_to_text: "{{context}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
    "last_words": """
output_type: loglikelihood
doc_to_text: "{{context}}"
doc_to_target: "{{choices[answer]}}"
metric_list: [{metric: perplexity}, {metric: acc}]
""",
    "texts": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: bits_per_byte}]
""",
    "answers": """
output_type: generate_until
doc_to_text: "the {{context}}"
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: [" dog", "mat"], max_gen_toks: 6, do_sample: false}
metric_list: [{metric: exact_match}]
""",
}


SPECIAL = {  # which transformers does not read from tokenizer.json
    "gpt2": {"eos_token": "<|endoftext|>"}, "llama": {"bos_token": "<s>", "eos_token": "</s>"},
}  # fmt: skip


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A folder of tasks, on documents of different lengths, one of them without a context."""
    folder, rng = tmp_path_factory.mktemp("tasks"), np.random.default_rng(0)

    def words(count):
        return " ".join(rng.choice(WORDS, count))

    documents = [
        {
            "context": words(3 * i % 17), "choices": [f" {words(1 + j)}" for j in range(3)],
            "answer": i % 3, "text": words(5 + 7 * i),
        }
        for i in range(12)
    ]  # fmt: skip
    (folder / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in documents))
    source = f"""
dataset_path: json
dataset_kwargs: {{data_files: {{test: "{folder / "documents.jsonl"}"}}}}
test_split: test
"""
    for name, task in TASKS.items():
        (folder / f"{name}.yaml").write_text(f"task: {name}\n{source}{task}")
    return folder


@pytest.mark.slow
@pytest.mark.parity
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_figures_are_those_of_transformers(folders, tasks, family, capsys, monkeypatch):
    lm_eval = pytest.importorskip("lm_eval")
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    folder, *_ = folders(family)
    model = runs.harness_model(runs.open_run(folder))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **SPECIAL[family]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = HFLM(pretrained=str(folder), device="cpu", batch_size=4, dtype="float32")

    def evaluate(model):
        manager = TaskManager(include_path=str(tasks))
        return lm_eval.simple_evaluate(
            model=model, tasks=[*TASKS], task_manager=manager, log_samples=True, bootstrap_iters=0
        )

    got, expected = evaluate(model), evaluate(theirs)
    for task in TASKS:
        for name, value in expected["results"][task].items():
            if isinstance(value, float):
                assert got["results"][task][name] == pytest.approx(value, rel=1e-4), (task, name)
        answers = [
            [sample["resps"] for sample in results["samples"][task]] for results in (got, expected)
        ]
        if task == "answers":
            assert answers[0] == answers[1]
    assert len({str(sample["resps"]) for sample in got["samples"]["answers"]}) > 3
    main(["evaluate", str(folder), "--tasks", "choices", "texts", "--include", str(tasks)])
    assert "|choices|" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="lm-eval has no task chioces"):
        runs.evaluate_tasks(model.model, ["chioces"])


def test_scores_are_those_of_the_model(folders):
    """Also of more texts than are scored at a time, and of a context that is too long."""
    model = runs.open_run(folders("llama")[0])
    answers, texts = (
        harness._HarnessMethods(model),
        [" ".join(WORDS[: 1 + i % 5]) for i in range(11)],
    )
    prompts = [" ".join(WORDS[i:]) for i in range(11)]
    encoded = [
        (None, answers.tok_encode(prompt), answers.tok_encode(text, add_special_tokens=False))
        for prompt, text in zip(prompts, texts, strict=True)
    ]
    scores = answers._loglikelihood_tokens(encoded)
    expected = model.log_likelihood(texts, prompts=prompts)
    np.testing.assert_allclose(
        [nats for nats, _ in scores], [score.log_likelihood for score in expected], rtol=1e-5
    )
    _, context, text = encoded[0]
    ((cut, _),) = answers._loglikelihood_tokens([(None, [5] * 60 + context, text)])
    ((same, _),) = answers._loglikelihood_tokens([(None, ([5] * 60 + context)[-34:], text)])
    assert model.max_len == 40 and cut != same
    most = 41 - len(text)
    with pytest.raises(ConfigError, match="must have at most max_len=40 tokens, got 41"):
        answers._loglikelihood_tokens([(None, [0], [5] * 41)])
    ((same, _),) = answers._loglikelihood_tokens([(None, ([5] * 60 + context)[-most:], text)])
    assert cut == pytest.approx(same, rel=1e-6)


def test_continuation_ends_before_a_stop_text_and_is_the_greedy_one(folders):
    model = runs.open_run(folders("llama")[0])
    answers, options = harness._HarnessMethods(model), {"until": [], "max_gen_toks": 9}
    whole = answers._continuation("the cat", options)
    expected = model.generate("the cat", max_new_tokens=9, temperature=0.0)
    assert whole == expected.strip() and " " in whole
    stop = whole.split()[-1]
    cut = answers._continuation("the cat", options | {"until": ["nothing", stop]})
    assert cut == whole[: whole.index(stop)]
    ids = answers.tok_encode(whole, add_special_tokens=False)
    for tokens, is_greedy in ((ids, True), ([*ids[:-1], 5], False)):
        ((_, greedy),) = answers._loglikelihood_tokens(
            [(None, answers.tok_encode("the cat"), tokens)]
        )
        assert greedy is is_greedy
    drawn = options | {"temperature": 5.0}
    assert answers._continuation("the cat", drawn) != answers._continuation("the cat", drawn)
    assert answers._continuation("the cat", drawn | {"top_k": 1, "num_beams": 1}) == whole
    with pytest.raises(ConfigError, match="greedily or by sampling, got num_beams=4"):
        answers._continuation("the cat", options | {"num_beams": 4})
    decoding = dataclasses.replace(model.decoding, forbidden=tuple(ids[:1]))
    answers.model = dataclasses.replace(model, decoding=decoding)
    assert ids[0] not in answers.tok_encode(answers._continuation("the cat", options))
    with pytest.raises(DataError, match="max_new_tokens=40, together more than .* of 40; ask for"):
        answers._continuation("the cat", {"until": [], "max_gen_toks": 40})


def test_missing_package_is_named(folders, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(ConfigError, match=r'pip install "jaxformer\[harness\]"'):
        runs.harness_model(runs.open_run(folders("gpt2")[0]))
