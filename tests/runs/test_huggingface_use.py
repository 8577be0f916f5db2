"""Folders of Hugging Face that are used as runs are."""

import shutil

import jax
import numpy as np
import pytest
import tokenizers

from jaxformer import runs
from jaxformer.config import BeamSearchConfig, MeshConfig, SamplingConfig
from jaxformer.errors import CheckpointError, ConfigError, DataError
from jaxformer.inference import generate, translate
from jaxformer.interop.hub import local_folder
from jaxformer.models import Decoder, EncoderDecoder, MaskedLanguageModel
from jaxformer.runs.weights.huggingface import HuggingFaceWeights
from jaxformer.text import build_stream
from tests.interop.golden import read_golden
from tests.runs import pretrained_folders, tiny

GREEDY = SamplingConfig(temperature=0.0)
TEXT = pretrained_folders.TEXT
ids_of = pretrained_folders.ids_of


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


def test_likelihood_counts_the_first_token_where_one_is_before_it(folders):
    folder, config, params = folders("llama")
    (likelihood,) = runs.open_run(folder).log_likelihood([TEXT])
    ids = np.array(ids_of(folder, TEXT))
    logits = Decoder(config).apply({"params": params}, ids[None, :-1]).logits[0]
    expected = jax.nn.log_softmax(logits)[np.arange(6), ids[1:]].sum()
    assert likelihood.num_tokens == 6
    np.testing.assert_allclose(likelihood.log_likelihood, expected, rtol=1e-5)


def test_masks_are_filled_within_the_special_tokens(folders):
    folder, config, params = folders("bert")
    run = runs.open_run(folder)
    ((fills,),) = run.fill_masks(["the cat [MASK] on"], 3)
    ids = np.array([1, *ids_of(folder, "the cat")[1:-1], 3, *ids_of(folder, "on")[1:]])
    np.testing.assert_array_equal(run.encode("the cat [MASK] on"), ids)
    logits = MaskedLanguageModel(config).apply({"params": params}, ids[None]).logits[0, 3]
    ordinary = np.array(logits)[5:]  # behind the special tokens and [UNK]
    best = np.argsort(-ordinary)[:3]
    assert [fill.text for fill in fills] == [pretrained_folders.WORDS[i] for i in best]


def test_translator_starts_and_ends_as_its_config_says(folders):
    folder, config, params = folders("t5")
    run = runs.open_run(folder)
    source = ids_of(folder, TEXT)
    assert source[-1] == 1
    ((expected,),) = translate(
        EncoderDecoder(config), params, [source], start_token=0, end_tokens=[1],
        search=BeamSearchConfig(beam_size=3), max_new_tokens=16,  # and the start: max_length
    )  # fmt: skip
    ((translation,),) = run.translate([TEXT], beam_size=3)
    assert (
        translation.text == run.decode(expected.tokens)
        and translation.finished == expected.finished
    )
    np.testing.assert_allclose(translation.score, expected.score, rtol=1e-5)
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
    evaluation = run.evaluate([path])
    assert evaluation.predicted == 40 * 6 and 0 < evaluation.loss < 100
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
    evaluation = runs.open_run(folder).evaluate([path])
    assert evaluation.predicted == len(words) + 1
    expected = (nats[0].sum() + nats[1, 1:35].sum()) / evaluation.predicted
    np.testing.assert_allclose(evaluation.loss, expected, rtol=1e-5)


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
    assert again.translate(["the cat"]) == run.translate(["the cat"])
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
    run = runs.open_run(larger)
    before = runs.open_run(folder).generate(TEXT, max_new_tokens=2, temperature=0)
    assert run.generate(TEXT, max_new_tokens=2, temperature=0) == before
    message = rf"the model has rows for {size} tokens, got 'zyx' \(id {size + 1}\) in a text"
    with pytest.raises(DataError, match=message):
        run.generate(f"{TEXT} zyx", max_new_tokens=2)
    path = tiny.write(tmp_path / "text.txt", [f"{TEXT} zyx"] * 40)
    with pytest.raises(DataError, match=message):
        run.evaluate([path])
    runs.convert(larger, tmp_path / "run")
    with pytest.raises(DataError, match=message):
        runs.open_run(tmp_path / "run").generate("zyx", max_new_tokens=2)


def test_folder_without_tokenizer_is_refused(folders, tmp_path):
    pretrained_folders.gpt2(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()
    with pytest.raises(DataError, match="must have a tokenizer, such as tokenizer.json, got none"):
        runs.open_run(tmp_path / "model")


def test_ids_need_the_hub_and_other_missing_folders_are_runs(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)  # where there is no folder runs
    with pytest.raises(CheckpointError, match="runs/quickstart is not a run folder: there is no"):
        runs.open_run("runs/quickstart")
    import huggingface_hub

    def download(name, allow_patterns):
        assert not any(pattern.endswith((".bin", ".py")) for pattern in allow_patterns)
        if name == "owner/none":
            raise OSError("404 Client Error\nmore")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert local_folder("owner/model") == tmp_path
    assert capsys.readouterr().err == "downloading owner/model from the Hugging Face Hub\n"
    for name, message in (
        ("owner/none", "cannot be downloaded: 404 Client Error; check the name"),
        ("a/b/c", "must be the folder of a model, or an id"),
        ("runs/quickstart", "must be the folder of a model, or an id"),
    ):
        with pytest.raises(CheckpointError, match=message):
            local_folder(name)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llama-score", "a decoder classifier"),
        ("bert-tokens", "a token classifier"),
    ],
)
def test_model_that_no_command_uses_is_for_python(tmp_path, name, kind):
    read_golden(name).write(tmp_path)
    with pytest.raises(ConfigError, match=f"holds {kind}.* load it in Python with interop.load_"):
        runs.open_run(tmp_path)
