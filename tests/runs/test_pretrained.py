"""Folders of Hugging Face that are used as runs are, started from, and converted."""

import dataclasses
import functools
import json
import shutil

import jax
import numpy as np
import pytest
import tokenizers

from jaxformer import runs
from jaxformer.cli import main
from jaxformer.config import BeamSearchConfig, LoraConfig, MeshConfig, SamplingConfig
from jaxformer.errors import CheckpointError, ConfigError, DataError
from jaxformer.inference import generate, translate
from jaxformer.interop import (
    HuggingFaceModel,
    load_huggingface,
    load_params,
    open_huggingface,
    save_huggingface,
)
from jaxformer.interop.hub import local_folder
from jaxformer.models import Decoder, EncoderDecoder, MaskedLanguageModel, SequenceClassifier
from jaxformer.runs.weights.huggingface import HuggingFaceWeights, decoding_of
from jaxformer.runs.weights.preparing import prepare_run
from jaxformer.text import build_stream
from jaxformer.training import SingleRunner
from tests.interop.golden import read_golden
from tests.runs import pretrained_folders, tiny

GREEDY = SamplingConfig(temperature=0.0)
TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Writes each folder when it is first asked for: its path, config and parameters."""
    made = {}

    def get(name, *arguments):
        key = (name, *arguments)
        if key not in made:
            folder = tmp_path_factory.mktemp(name) / "model"
            made[key] = folder, *getattr(pretrained_folders, name)(folder, *arguments)
        return made[key]

    return get


def ids_of(folder, text):
    """Tokens of a text, by the library alone."""
    return pretrained_folders.tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json").encode(
        text
    ).ids  # fmt: skip


def test_decoder_continues_a_text_behind_its_start_token(folders):
    folder, config, params = folders("llama")
    run = runs.open_run(folder)
    prompt = ids_of(folder, TEXT)
    assert prompt[0] == 0 and len(prompt) == 7  # <s>, and the words
    (expected,) = generate(
        Decoder(config), params, [prompt], max_new_tokens=9, rng=jax.random.key(0), sampling=GREEDY,
        stop_tokens=(1, 2),
    )  # fmt: skip
    assert run.generate(TEXT, max_new_tokens=9, temperature=0.0).strip() == run.decode(expected)
    np.testing.assert_array_equal(run.encode(TEXT), prompt)
    assert run.stop_tokens == (1, 2) and run.step is None
    assert "step" not in repr(run)


def test_tokens_that_a_folder_forbids_are_not_generated(folders, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(folders("llama")[0], folder)
    free = runs.open_run(folder).generate(TEXT, max_new_tokens=4).split()
    word = ids_of(folder, free[0])[1]
    (folder / "generation_config.json").write_text(json.dumps({"bad_words_ids": [[word]]}))
    assert free[0] not in runs.open_run(folder).generate(TEXT, max_new_tokens=4).split()


def test_likelihood_counts_the_first_token_where_one_is_before_it(folders):
    folder, config, params = folders("llama")
    (found,) = runs.open_run(folder).log_likelihood([TEXT])
    ids = np.array(ids_of(folder, TEXT))
    logits = Decoder(config).apply({"params": params}, ids[None, :-1]).logits[0]
    expected = jax.nn.log_softmax(logits)[np.arange(6), ids[1:]].sum()
    assert found.num_tokens == 6
    np.testing.assert_allclose(found.log_likelihood, expected, rtol=1e-5)


def test_masks_are_filled_within_the_special_tokens(folders):
    folder, config, params = folders("bert")
    run = runs.open_run(folder)
    ((fills,),) = [run.fill_masks("the cat [MASK] on", 3)]
    ids = np.array([1, *ids_of(folder, "the cat")[1:-1], 3, *ids_of(folder, "on")[1:]])
    np.testing.assert_array_equal(run.encode("the cat [MASK] on"), ids)
    logits = MaskedLanguageModel(config).apply({"params": params}, ids[None]).logits[0, 3]
    ordinary = np.array(logits)[5:]  # behind the special tokens and [UNK]
    best = np.argsort(-ordinary)[:3]
    assert [fill.text for fill in fills] == [pretrained_folders.WORDS[i] for i in best]


def test_classifier_has_the_names_of_its_classes(folders):
    folder, config, params = folders("bert", 3)
    (best, *_) = runs.open_run(folder).classify(TEXT, 3)
    ids = np.array(ids_of(folder, TEXT))
    logits = SequenceClassifier(config).apply({"params": params}, ids[None]).logits[0]
    assert best.name == ("bad", "good", "so-so")[int(logits.argmax())]
    np.testing.assert_allclose(best.probability, jax.nn.softmax(logits).max(), rtol=1e-5)


def with_problem_type(folders, tmp_path, kind):
    """A classifier of three classes whose scores are read in another way."""
    folder = tmp_path / "model"
    shutil.copytree(folders("bert", 3)[0], folder)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"problem_type": kind}))
    return folder


def test_probabilities_of_several_labels_are_each_for_itself(folders, tmp_path):
    folder = with_problem_type(folders, tmp_path, "multi_label_classification")
    runs.convert(folder, tmp_path / "run")
    runs.convert(tmp_path / "run", tmp_path / "again")
    (scores,) = runs.open_run(folders("bert", 3)[0]).score([TEXT])
    expected = dict(zip(("bad", "good", "so-so"), 1 / (1 + np.exp(-scores)), strict=True))
    for path in (folder, tmp_path / "run", tmp_path / "again"):
        best = runs.open_run(path).classify(TEXT, 3)
        assert dict(best) == pytest.approx(expected)
        assert [c.name for c in best] == sorted(expected, key=expected.__getitem__)[::-1]
    labels = tiny.write(tmp_path / "labels.tsv", [f"{TEXT}\tgood"])
    with pytest.raises(ConfigError, match="gives each text one label, got one of problem_type"):
        runs.open_run(tmp_path / "run").evaluate([labels])


def test_model_of_scores_gives_them_as_they_are(folders, tmp_path, capsys):
    folder = with_problem_type(folders, tmp_path, "regression")
    runs.convert(folder, tmp_path / "run")
    run, ids = runs.open_run(tmp_path / "run"), np.array(ids_of(folder, TEXT))
    logits = run.module.apply({"params": run.params}, ids[None]).logits[0]
    (scores,) = run.score([TEXT])
    np.testing.assert_allclose(scores, logits, rtol=1e-5)
    with pytest.raises(ConfigError, match="no probabilities of classes; call score instead"):
        run.classify(TEXT)
    main(["predict", str(folder), TEXT])
    lines = [f"{score:.4f}\t{name}\n" for score, name in zip(scores, run.classes, strict=True)]
    assert capsys.readouterr().out == "".join(lines) + "\n"
    shown = run.sample(TEXT)
    assert shown.startswith(f"{TEXT}\nbad {scores[0]:.4f}, good ")
    with pytest.raises(DataError, match="text 1: a text must have 1 to"):
        run.score([TEXT, " "])


def test_reranker_scores_a_query_with_a_passage(folders, tmp_path):
    folder, config, params = folders("bert", 1)
    run = runs.open_run(folder)
    assert run.problem_type == "regression" and run.classes == ("bad",)
    with pytest.raises(DataError, match="text 0: to read two texts together"):
        run.score([TEXT], [TEXT])
    shutil.copytree(folder, tmp_path / "model")
    library = pretrained_folders.tokenizer(
        ["[PAD]", "[CLS]", "[SEP]", "[MASK]"], "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"
    )
    library.save(str(tmp_path / "model" / "tokenizer.json"))
    run = runs.open_run(tmp_path / "model")
    texts, passages = [TEXT, "the dog", TEXT], ["good", "a blue house is well", "bad log"]
    scores = run.score(texts, passages)
    for found, text, passage in zip(scores, texts, passages, strict=True):
        pair = library.encode(text, passage)
        expected = SequenceClassifier(config).apply(
            {"params": params}, np.array([pair.ids]), token_types=np.array([pair.type_ids])
        )
        np.testing.assert_allclose(found, expected.logits[0], rtol=1e-4)
    for second, words in (
        ([" "] * 3, "text 0: a pair of texts must have tokens in both and at most max_len=24"),
        ([TEXT * 4] * 3, "got 6 and 21, and 30 with special tokens"),
        (["one"], "must be a list with one for each text, got 1 and 3 texts"),
        ("one", "must be a list with one for each text"),
    ):
        with pytest.raises(DataError, match=words):
            run.score(texts, second)


def test_translator_starts_and_ends_as_its_config_says(folders):
    folder, config, params = folders("t5")
    run = runs.open_run(folder)
    source = ids_of(folder, TEXT)
    assert source[-1] == 1
    ((expected,),) = translate(
        EncoderDecoder(config), params, [source], start_token=0, end_tokens=[1],
        search=BeamSearchConfig(beam_size=3), max_new_tokens=16,  # and the start: max_length
    )  # fmt: skip
    (found,) = run.translate(TEXT, beam_size=3)
    assert found.text == run.decode(expected.tokens) and found.finished == expected.finished
    np.testing.assert_allclose(found.score, expected.score, rtol=1e-5)
    (nats,) = run.log_likelihood(["the dog"], prompts=[TEXT])
    target = np.array([0, *ids_of(folder, "the dog")])
    logits = EncoderDecoder(config).apply(
        {"params": params}, np.array([source]), target[None, :-1]
    ).logits[0]  # fmt: skip
    expected = jax.nn.log_softmax(logits)[np.arange(3), target[1:]].sum()
    np.testing.assert_allclose(nats.log_likelihood, expected, rtol=1e-5)


def test_folder_is_measured_on_files_and_has_none_of_its_own(folders, tmp_path):
    folder, *_ = folders("gpt2")
    run = runs.open_run(folder)
    path = tiny.write(tmp_path / "text.txt", [TEXT] * 40)
    found = run.evaluate([path])
    assert found.predicted == 40 * 6 and 0 < found.loss < 100
    with pytest.raises(DataError, match="has no validation data, since it was not trained here"):
        run.evaluate()


def test_evaluation_reads_the_start_token_before_each_stretch_of_text(folders, tmp_path):
    folder, config, params = folders("llama")
    path = tiny.write(tmp_path / "text.txt", [TEXT] * 12)
    (start, *words), end = ids_of(folder, f"{TEXT} " * 12), 1
    # The model sees 40 tokens: the start and 39 of the text, each of which is predicted once.
    rows = np.array([[start, *words[:39]], [start, *words[38:], *[end] * 5]])
    logits = Decoder(config).apply({"params": params}, rows[:, :-1]).logits
    nats = -np.take_along_axis(jax.nn.log_softmax(logits), rows[:, 1:, None], 2)[..., 0]
    found = runs.open_run(folder).evaluate([path])
    assert found.predicted == len(words) + 1
    expected = (nats[0].sum() + nats[1, 1:35].sum()) / found.predicted
    np.testing.assert_allclose(found.loss, expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["llama", "bert", "gpt2"])
def test_training_and_evaluation_read_a_text_as_use_does(folders, name):
    model = HuggingFaceWeights(folders(name)[0]).model
    task = runs.task_class(model.config)(model=model)
    (row,) = task.windows(build_stream([TEXT], task.tokenizer))
    ids = model.encode(TEXT)
    size = ids.size - (name != "bert")  # a decoder only predicts the last
    np.testing.assert_array_equal(row["tokens"][:size], ids[:size])
    assert not row["tokens"][size:].any()


def test_options_of_one_kind_of_folder_are_refused_for_the_other(folders):
    folder, *_ = folders("gpt2")
    with pytest.raises(ConfigError, match="step can only be set for a run, got 3"):
        runs.open_run(folder, 3)
    with pytest.raises(ConfigError, match="table of 24 positions, got 8"):
        runs.open_run(folder, max_len=8)
    run = runs.open_run(folder, dtype="bfloat16")
    assert run.params["embedding"]["embedding"].dtype == "bfloat16"
    assert run.config.model.dtype == "bfloat16"


def test_parameters_go_straight_to_the_devices_of_a_mesh(folders):
    folder, *_ = folders("llama")
    run = runs.open_run(folder, mesh=MeshConfig(fsdp=2))
    kernel = run.params["stack"]["layers"]["feed_forward"]["up_kernel"]
    assert len(kernel.sharding.device_set) == 2
    assert kernel.addressable_shards[0].data.shape == (2, 6, 20)
    again = runs.open_run(folder)
    jax.tree.map(np.testing.assert_array_equal, run.params, again.params)


def test_chat_template_of_a_folder_comes_along(folders, tmp_path, capsys):
    folder = tmp_path / "model"
    config, params = pretrained_folders.llama(folder)
    template = "<s>{% for m in messages %}{{ m.content }}</s>{% endfor %}<|eot|>"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    run, message = runs.open_run(folder), {"role": "user", "content": TEXT}
    ids = [0, *ids_of(folder, TEXT)[1:], 1, 2]
    (expected,) = generate(
        Decoder(config), params, [ids], max_new_tokens=9, rng=jax.random.key(0), sampling=GREEDY,
        stop_tokens=(1, 2),
    )  # fmt: skip
    answer = run.chat([message], max_new_tokens=9, temperature=0.0)
    assert answer.strip() == run.decode(expected)
    runs.convert(folder, tmp_path / "run")
    again = runs.open_run(tmp_path / "run")
    assert again.chat([message], max_new_tokens=9, temperature=0.0) == answer
    main(["generate", str(tmp_path / "run"), TEXT, "--chat", "--max-new-tokens", "9"])
    assert capsys.readouterr().out == f"{TEXT}\n{answer}\n"
    main(["inspect", str(tmp_path / "run")])
    shown = " ".join(capsys.readouterr().out.split())
    assert "a language model, which continues text;" in shown
    assert "to have messages answered: jaxformer generate" in shown
    runs.convert(tmp_path / "run", tmp_path / "again")
    values = json.loads((tmp_path / "again" / "tokenizer_config.json").read_text())
    assert values["chat_template"] == template
    with pytest.raises(ConfigError, match="is a language model without a chat template"):
        runs.open_run(folders("gpt2")[0]).chat([message])


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=2)])
def test_chat_template_of_a_folder_is_kept_where_it_is_fine_tuned(tmp_path, capsys, lora):
    folder, message = tmp_path / "model", {"role": "user", "content": TEXT}
    pretrained_folders.llama(folder)
    template = "<s>{% for m in messages %}{{ m.content }}</s>{% endfor %}<|eot|>"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    expected = runs.open_run(folder).encode_messages([message])
    made = starting(tmp_path, folder, model={"max_len": 12}, training={"steps": 1})
    made = dataclasses.replace(made, lora=lora)
    assert runs.prepare_task(made).model.chat_template is not None
    runs.train_run(made)
    folder.rename(tmp_path / "moved")  # a run that goes on has a template of its own
    base = None if lora is None else tmp_path / "moved"
    runs.train_run(tiny.change(made, training={"steps": 2}), base=base)
    run = runs.open_run(made.out, base=base)
    assert run.encode_messages([message]) == expected and run.stop_tokens == (1, 2)
    runs.convert(made.out, tmp_path / "again", base=base)
    values = json.loads((tmp_path / "again" / "tokenizer_config.json").read_text())
    assert values["chat_template"] == template
    if lora is None:  # whose merged model is a run as any
        words = ["generate", made.out, TEXT, "--chat", "--max-new-tokens", "2"]
        main([*words, "--temperature", "0"])
        answer = run.chat([message], max_new_tokens=2, temperature=0.0)
        assert capsys.readouterr().out.endswith(f"{TEXT}\n{answer}\n")
        # A run that starts from this one has it, too.
        other = dataclasses.replace(made, init_from=made.out, out=str(tmp_path / "other"))
        assert runs.prepare_task(other).model.encode_messages([message]) == expected


def test_lora_trains_beside_the_weights_of_a_folder(folders, tmp_path):
    folder, _, params = folders("llama")
    made = starting(tmp_path, folder, model={"max_len": 8})
    made = dataclasses.replace(made, lora=LoraConfig(rank=2))
    reports = []
    runs.train_run(made, on_start=lambda task: reports.extend(task.report))
    assert any(line.startswith("LoRA: ") for line in reports)
    run = runs.open_run(tmp_path / "run")
    attention = run.params["stack"]["layers"]["attention"]
    before = params["stack"]["layers"]["attention"]
    np.testing.assert_array_equal(attention["key_kernel"], before["key_kernel"])
    assert not np.array_equal(attention["query_kernel"], before["query_kernel"])
    runs.convert(tmp_path / "run", tmp_path / "merged")
    merged = load_huggingface(tmp_path / "merged").params
    jax.tree.map(np.testing.assert_array_equal, merged, run.params)
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    other = runs.open_run(tmp_path / "run", base=moved)
    jax.tree.map(np.testing.assert_array_equal, other.params, run.params)
    # The matrices alone are an adapter, which opens, and starts a run, merged with its model.
    adapter = tmp_path / "adapter"
    said = runs.convert(tmp_path / "run", adapter, adapter=True)
    assert said == f"wrote an adapter of {folder} to {adapter}"
    opened = runs.open_run(adapter).params["stack"]["layers"]["attention"]
    for name in ("query_kernel", "value_kernel"):
        np.testing.assert_allclose(opened[name], attention[name], rtol=0, atol=1e-6)
    task, source = prepare_run(starting(tmp_path, adapter, model={"max_len": 8}))
    start = source.start(task.model, SingleRunner()).params["stack"]["layers"]["attention"]
    np.testing.assert_array_equal(start["query_kernel"], opened["query_kernel"])
    (moved / "config.json").write_text((moved / "config.json").read_text() + " ")
    with pytest.raises(CheckpointError, match="is not the one of the training: its SHA-256"):
        runs.open_run(tmp_path / "run", base=moved)


def test_languages_of_a_translator_of_several_are_chosen(tmp_path):
    """The source is behind its language, and the target begins with its own."""
    folder = tmp_path / "model"
    config = {
        **pretrained_folders.SIZES, "architecture": "encoder_decoder", "max_len": 16,
        "positions": "learned", "norm_position": "pre", "embedding_norm": True,
        "activation": "gelu", "output_bias": True,
    }  # fmt: skip
    special = ["<s>", "<pad>", "</s>", "<unk>", "eng_Latn", "kan_Knda"]
    fields = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_length": 9}
    pretrained_folders.write(folder, EncoderDecoder, config, special=special, fields=fields)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "NllbTokenizer"}')
    languages = {"source_language": "kan_Knda", "target_language": "eng_Latn"}
    run = runs.open_run(folder, **languages)
    assert run.encode("the cat")[0] == 5 and run.encode("the cat")[-1] == 2
    assert (run.decoding.decoder_start, run.decoding.forced_first) == (2, 4)
    runs.convert(folder, tmp_path / "run", **languages)
    again = runs.open_run(tmp_path / "run")
    assert again.translate("the cat") == run.translate("the cat")
    with pytest.raises(ConfigError, match="model's, such as kan_Knda, got 'kan'"):
        runs.open_run(folder, target_language="kan")
    with pytest.raises(ConfigError, match="source_language can only be set for a Hugging Face"):
        runs.open_run(tmp_path / "run", source_language="eng_Latn")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BartTokenizer"}')
    with pytest.raises(ConfigError, match="a language can only be chosen for a multilingual"):
        runs.open_run(folder, target_language="eng_Latn")


def test_tokenizer_of_more_tokens_than_the_table_has_rows_refuses_these(folders, tmp_path):
    folder, *_ = folders("gpt2")
    larger = shutil.copytree(folder, tmp_path / "larger")
    library = tokenizers.Tokenizer.from_file(str(larger / "tokenizer.json"))
    size = library.get_vocab_size()
    library.add_tokens(["xyz", "zyx"])
    library.save(str(larger / "tokenizer.json"))
    with pytest.warns(UserWarning, match=f"rows for {size} tokens, .* 2 more, such as 'xyz'; a"):
        run = runs.open_run(larger)
    before = runs.open_run(folder).generate(TEXT, max_new_tokens=2, temperature=0)
    assert run.generate(TEXT, max_new_tokens=2, temperature=0) == before
    message = rf"the model has rows for {size} tokens, got 'zyx' \(id {size + 1}\) in a text"
    with pytest.raises(DataError, match=message):
        run.generate(f"{TEXT} zyx", max_new_tokens=2)
    path = tiny.write(tmp_path / "text.txt", [f"{TEXT} zyx"] * 40)
    with pytest.raises(DataError, match=message):
        run.evaluate([path])
    with pytest.warns(UserWarning, match="2 more"):
        runs.convert(larger, tmp_path / "run")
    with pytest.raises(DataError, match=message):
        runs.open_run(tmp_path / "run").generate("zyx", max_new_tokens=2)


def test_folder_without_tokenizer_is_refused(folders, tmp_path):
    pretrained_folders.gpt2(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()
    with pytest.raises(DataError, match="must have a tokenizer, such as tokenizer.json, got none"):
        runs.open_run(tmp_path / "model")


def test_conversion_that_is_killed_leaves_nothing_in_the_way(folders, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def die(*args):
        monkeypatch.setattr(shutil, "rmtree", lambda path: None)
        raise Killed

    source, target = folders("gpt2")[0], tmp_path / "run"
    monkeypatch.setattr("jaxformer.runs.folder.files.save_summary", die)  # once weights are on disk
    with pytest.raises(Killed):
        runs.convert(source, target)
    monkeypatch.undo()
    with pytest.raises(CheckpointError):
        runs.open_run(target)
    runs.convert(source, target)
    assert runs.open_run(target).step == 0


def test_ids_need_the_hub_and_other_missing_folders_are_runs(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)  # where there is no folder runs
    with pytest.raises(CheckpointError, match="runs/quickstart is not a run folder: there is no"):
        runs.open_run("runs/quickstart")
    with pytest.raises(CheckpointError, match="is not a run folder: there is no such folder"):
        runs.open_run(tmp_path / "missing")
    import huggingface_hub

    def download(name, allow_patterns):
        assert not any(pattern.endswith((".bin", ".py")) for pattern in allow_patterns)
        if name == "owner/none":
            raise OSError("404 Client Error\nmore")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert local_folder("owner/model") == tmp_path
    assert capsys.readouterr().err == "downloading owner/model from the Hugging Face Hub\n"
    with pytest.raises(
        CheckpointError, match="cannot be downloaded: 404 Client Error; check the name"
    ):
        local_folder("owner/none")
    with pytest.raises(CheckpointError, match="must be the folder of a model, or an id"):
        local_folder("a/b/c")
    with pytest.raises(CheckpointError, match="must be the folder of a model, or an id"):
        local_folder("runs/quickstart")


def starting(tmp_path, folder, **changes):
    """A config that says of the model only what is its own, completed as the command line does."""
    path = tiny.write(tmp_path / "text.txt", [TEXT, "a dog ran to the house"] * 40)
    values = {
        "data": {"source": "files", "paths": [str(path)]},
        "optimizer": {"learning_rate": 1e-3},
        "training": {"steps": 2, "batch_size": 4, "runner": "single"},
    }
    for name, table in changes.items():
        values[name] = values.get(name, {}) | table
    values = runs.complete_tables(values, str(folder), str(tmp_path / "run"))
    config = runs_config(values)
    return dataclasses.replace(config, out=str(tmp_path / "run"), init_from=str(folder))


def runs_config(values):
    from jaxformer.config import ExperimentConfig, config_from_dict

    return config_from_dict(ExperimentConfig, values)


def test_folder_that_a_run_starts_from_is_read_once(folders, tmp_path, monkeypatch):
    made, opened = starting(tmp_path, folders("llama")[0], model={"max_len": 8}), []

    def counted(*arguments, **options):
        opened.append(open_huggingface(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr("jaxformer.runs.weights.huggingface.open_huggingface", counted)
    task, source = prepare_run(made)
    assert source.start(task.model, SingleRunner()).report and source.identity
    assert len(opened) == 1


def test_training_starts_from_a_folder_and_keeps_its_tokens(folders, tmp_path):
    folder, _, params = folders("llama")
    made = starting(tmp_path, folder, model={"max_len": 8, "dropout_rate": 0.1})
    assert made.tokenizer.kind == "pretrained" and made.model.activation == "swiglu"
    reports = []
    result = runs.train_run(made, on_start=lambda task: reports.extend(task.report))
    assert f"starting from the weights and tokenizers of {folder}" in reports
    before = runs.open_run(folder).evaluate([tmp_path / "text.txt"]).loss
    assert result.step == 2
    run = runs.open_run(tmp_path / "run")
    assert run.stop_tokens == (1, 2) and run.encode(TEXT)[0] == 0
    assert run.evaluate([tmp_path / "text.txt"]).loss < before + 0.5
    # It goes on, with the folder gone or not, and is a model of the family still.
    longer = starting(tmp_path, folder, model={"max_len": 8, "dropout_rate": 0.1})
    longer = dataclasses.replace(longer, training=dataclasses.replace(longer.training, steps=3))
    assert runs.train_run(longer).step == 3
    runs.convert(tmp_path / "run", tmp_path / "exported")
    again = load_huggingface(tmp_path / "exported")
    assert again.config.max_len == 8
    jax.tree.map(
        np.testing.assert_array_equal, again.params, runs.open_run(tmp_path / "run").params
    )


def test_table_of_positions_is_cut_where_texts_are_shorter(folders, tmp_path):
    folder, _, params = folders("gpt2")
    made = starting(tmp_path, folder, model={"max_len": 8}, training={"steps": 1})
    made = dataclasses.replace(
        made, optimizer=dataclasses.replace(made.optimizer, learning_rate=1e-30)
    )  # fmt: skip
    runs.train_run(made)
    found = runs.open_run(tmp_path / "run").params["positions"]["embedding"]
    np.testing.assert_array_equal(found, params["positions"]["embedding"][:8])
    longer = starting(tmp_path, folder, model={"max_len": 32})
    with pytest.raises(ConfigError, match=r"model\.max_len: 24 there, 32 here"):
        runs.train_run(dataclasses.replace(longer, out=str(tmp_path / "longer")))


def test_config_file_may_leave_the_model_to_what_it_starts_from(folders, tmp_path, capsys):
    folder = tmp_path / "model"
    shutil.copytree(folders("gpt2")[0], folder)
    text, config = tmp_path / "text.txt", tmp_path / "tune.toml"
    tiny.write(text, [TEXT, "a dog ran to the house"] * 40)
    config.write_text(
        f"""
        out = "{tmp_path / "run"}"
        [data]
        paths = ["{text}"]
        [model]
        max_len = 8
        [optimizer]
        learning_rate = 1e-3
        [training]
        steps = 1
        batch_size = 4
        """
    )
    words = ["train", str(config), "--training.runner", "single", f"--init-from={folder}"]
    main(words)
    assert "starting from the weights and tokenizers" in capsys.readouterr().out
    folder.rename(tmp_path / "gone")  # of which a run that goes on needs nothing
    main([*words, "--training.steps", "2"])
    assert "resuming at step 1 of 2" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*words[:-1], "--training.steps", "2"])  # with sizes of its own
    assert "init_from" in capsys.readouterr().err


def test_headless_encoder_is_for_classifiers(folders, tmp_path):
    folder, *_ = folders("bert_base")
    with pytest.raises(ConfigError, match="holds an encoder without a head, which predicts"):
        runs.open_run(folder)
    made = starting(tmp_path, folder, model={"max_len": 8})
    with pytest.raises(ConfigError, match="from which a classifier can start, got a masked"):
        runs.train_run(made)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llama-score", "a decoder that classifies"),
        ("bert-tokens", "an encoder that classifies ea"),
    ],
)
def test_model_that_no_command_uses_is_for_python(tmp_path, name, kind):
    read_golden(name).write(tmp_path)
    with pytest.raises(ConfigError, match=f"holds {kind}.* load it in Python with interop.load_"):
        runs.open_run(tmp_path)


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("bert", None),
        ("bert", 3),
        ("bert_base", None),
    ],
)
def test_classifier_starts_from_an_encoder_with_any_head(folders, tmp_path, name, classes):
    folder, _, params = folders(name, *([classes] if classes else []))
    path = tiny.write(tmp_path / "labels.tsv", [f"{TEXT}\tgood", "a dog ran\tbad"] * 10)
    values = {
        "data": {"source": "labelled", "paths": [path]},
        "optimizer": {"learning_rate": 1e-30},
        "training": {"steps": 1, "batch_tokens": 64, "runner": "single"},
    }
    made = runs_config(runs.complete_tables(values, str(folder), str(tmp_path / "run")))
    made = dataclasses.replace(made, out=str(tmp_path / "run"), init_from=str(folder))
    runs.train_run(made)
    found = runs.open_run(tmp_path / "run")
    assert found.classes == ("bad", "good")
    kernel = found.params["encoder"]["stack"]["layers"]["feed_forward"]["up_kernel"]
    np.testing.assert_array_equal(
        kernel, params["encoder"]["stack"]["layers"]["feed_forward"]["up_kernel"]
    )
    if name == "bert_base":
        equal = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-20)
        jax.tree.map(equal, found.params["pooler"], params["pooler"])


def test_translator_that_was_trained_here_is_exported_with_how_it_decodes(tmp_path):
    rows = [f"{a} {b}\t{b} {a}" for a in ("one", "two", "three") for b in ("six", "ten", "two")]
    made = tiny.config(
        tmp_path, architecture="encoder_decoder",
        data={"source": "pairs", "paths": (tiny.write(tmp_path / "a.tsv", rows),),
              "validation_fraction": 0.3},
        model={"positions": "learned", "norm": "layer_norm", "activation": "gelu",
               "norm_position": "pre", "embedding_norm": True, "output_bias": True},
        training={"steps": 1, "eval_every": 1},
    )  # fmt: skip
    runs.train_run(made)
    said = runs.convert(tmp_path / "run", tmp_path / "hf")
    assert said.startswith("wrote a model of type mbart to ")
    run, again = runs.open_run(tmp_path / "run"), runs.open_run(tmp_path / "hf")
    np.testing.assert_array_equal(run.encode("one"), again.encode("one"))
    assert again.decoding.decoder_start == run.tokenizer.end_of_text
    assert again.config.translation.beam_size == run.config.translation.beam_size
    assert again.translate("one") == run.translate("one")
    # Its tokenizer puts the end behind a source in any program.
    assert ids_of(tmp_path / "hf", "one") == run.encode("one").tolist()


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5"])
def test_folder_to_run_to_folder_is_the_same(folders, tmp_path, name):
    folder, config, _ = folders(name)
    assert "wrote a run to" in runs.convert(folder, tmp_path / "run")
    run, before = runs.open_run(tmp_path / "run"), runs.open_run(folder)
    assert run.config.model == before.config.model
    jax.tree.map(np.testing.assert_array_equal, run.params, before.params)
    assert run.decoding == before.decoding
    assert run.tokenizer.identity == before.tokenizer.identity
    np.testing.assert_array_equal(run.encode(TEXT), before.encode(TEXT))
    assert {one.damage for one in runs.verify_run(tmp_path / "run")} == {None}
    runs.convert(tmp_path / "run", tmp_path / "again")
    old, new = (path / "model.safetensors" for path in (folder, tmp_path / "again"))
    assert old.read_bytes() == new.read_bytes()
    with pytest.raises(CheckpointError, match="choose another target"):
        runs.convert(folder, tmp_path / "run")


@pytest.mark.parametrize(
    ("model_type", "activation", "note"),
    [
        ("mistral", "swiglu", ""),
        ("arcee", "relu2",
         " (Llama without a feed-forward gate; transformers reads it from 4.53 on)"),
    ],
)  # fmt: skip
def test_run_is_written_as_the_family_that_it_was_loaded_as(
    folders, tmp_path, model_type, activation, note
):
    folder, config, params = folders("llama")
    config = dataclasses.replace(config, activation=activation)
    if activation == "relu2":
        feed_forward = dict(params["stack"]["layers"]["feed_forward"])
        del feed_forward["gate_kernel"]
        layers = params["stack"]["layers"] | {"feed_forward": feed_forward}
        params = params | {"stack": {"layers": layers}}
    save_huggingface(tmp_path / "hf", HuggingFaceModel(config, params), model_type=model_type)
    shutil.copy(folder / "tokenizer.json", tmp_path / "hf")
    runs.convert(tmp_path / "hf", tmp_path / "run")
    said = runs.convert(tmp_path / "run", tmp_path / "again")
    assert said == f"wrote a model of type {model_type} to {tmp_path / 'again'}{note}"
    old, new = (tmp_path / name / "model.safetensors" for name in ("hf", "again"))
    assert old.read_bytes() == new.read_bytes()


def test_family_that_cannot_say_what_a_run_computes_any_more_is_named(
    folders, tmp_path, monkeypatch
):
    def other(*arguments):
        return dataclasses.replace(decoding_of(*arguments), model_type="gpt2")

    monkeypatch.setattr("jaxformer.runs.weights.huggingface.decoding_of", other)
    runs.convert(folders("llama")[0], tmp_path / "run")
    said = runs.convert(tmp_path / "run", tmp_path / "again")
    assert said == (
        f"wrote a model of type llama to {tmp_path / 'again'} (gpt2, which it was loaded as, "
        "cannot represent it any more)"
    )


def test_classes_keep_their_names_through_a_run(folders, tmp_path):
    folder, *_ = folders("bert", 3)
    runs.convert(folder, tmp_path / "run")
    runs.convert(tmp_path / "run", tmp_path / "again")
    assert open_huggingface(tmp_path / "again").class_names == ("bad", "good", "so-so")
    values = json.loads((tmp_path / "again" / "config.json").read_text())
    assert values["label2id"] == {"bad": 0, "good": 1, "so-so": 2}


@pytest.mark.parametrize(
    ("target", "of_folder", "of_run"),
    [
        ("run", {"model_type", "step", "base"}, {"ignore", "source_language", "target_language"}),
        (
            "weights.safetensors",
            {"model_type", "step", "base", "source_language", "target_language"},
            {"model_type", "dtype", "ignore", "source_language", "target_language"},
        ),
    ],
)
def test_options_of_other_conversions_are_refused(target, of_folder, of_run, folders, tmp_path):
    """Those that are not refused meet a source or target that cannot be used."""
    options = {
        "model_type": "llama", "step": 1, "base": "base", "dtype": "bfloat16", "ignore": ["one"],
        "source_language": "en", "target_language": "de",
    }  # fmt: skip
    path = tmp_path / target
    (path if path.suffix else path / "file").parent.mkdir(exist_ok=True)
    (path if path.suffix else path / "file").touch()
    for source, expected in ((folders("llama")[0], of_folder), (tmp_path / "absent", of_run)):
        refused = set()
        for name, value in options.items():
            with pytest.raises(ValueError) as error:
                runs.convert(source, path, **{name: value})
            if f"{name} has no effect on what is written here" in str(error.value):
                refused.add(name)
        assert refused == expected


def test_parameters_of_any_run_are_one_file_with_a_config_beside_it(folders, tmp_path):
    folder, config, params = folders("llama")
    path = tmp_path / "weights.safetensors"
    runs.convert(folder, path)
    found, again = load_params(path)
    assert found == open_huggingface(folder).config
    jax.tree.map(np.testing.assert_array_equal, again, params)
    for options, message in (
        ({}, "weights.safetensors exists already; remove it"),
        ({"dtype": "bfloat16"}, "exists already"),
        ({"model_type": "llama"}, "model_type has no effect on what is written here"),
    ):
        with pytest.raises(ValueError, match=message):
            runs.convert(folder, path, **options)
    path.with_suffix(".toml").write_text(" " * (2**22 + 1))
    with pytest.raises(CheckpointError, match="weights.toml is damaged: .* at most 4,194,304"):
        load_params(path)
    path.with_suffix(".toml").unlink()
    with pytest.raises(CheckpointError, match=r"weights.toml, the config of .* cannot be read"):
        load_params(path)
    with pytest.raises(ConfigError, match="must end in .safetensors, got"):
        load_params(tmp_path / "weights.bin")
