"""How folders say that text is generated: rules that are followed, and others that are refused."""

import json

import pytest

from jaxformer import runs
from jaxformer.cli import main
from jaxformer.errors import ConfigError, DataError
from tests.runs import pretrained_folders, tiny
from tests.runs.pretrained_folders import with_settings

TEXT = "the cat sat on the mat"
REFUSED = "typical_p=0.9; .* ignore=\\('typical_p',\\), or --ignore typical_p"


@pytest.fixture(scope="module")
def refused(folders, tmp_path_factory):
    """A decoder with a setting of generation that is not supported."""
    target = tmp_path_factory.mktemp("refused") / "model"
    return with_settings(folders("llama")[0], target, typical_p=0.9)


def test_continuations_follow_the_folder_and_calls_their_options(folders, tmp_path):
    (blue,) = pretrained_folders.tokenizer(["<s>", "</s>", "<|eot|>"]).encode("blue").ids
    rules = {"no_repeat_ngram_size": 1, "min_length": 14, "eos_token_id": [1, 2, blue]}
    run = runs.open_run(with_settings(folders("llama")[0], tmp_path / "model", **rules))
    free = run.generate(TEXT, max_new_tokens=8, no_repeat_ngram_size=0, min_length=0)
    assert free.split()[-1] == "blue" and len(free.split()) < 7
    words = run.generate(TEXT, max_new_tokens=8).split()
    assert len(words) >= 7  # behind the 7 of the prompt
    assert len({*words, *TEXT.split()}) == len(words) + 5


def test_max_length_counts_the_prompt(folders, tmp_path):
    folder = with_settings(folders("llama")[0], tmp_path / "model", max_length=7)
    short = runs.open_run(folder)
    with pytest.raises(DataError, match="max_length=7, which counts the tokens of the prompt, go"):
        short.generate(TEXT)
    # As transformers continues the prompt of 7 tokens.
    assert short.generate(TEXT, max_new_tokens=5) == " to blue blue blue blue"


def test_settings_that_are_not_supported_stop_text_alone(refused, capsys):
    run = runs.open_run(refused)
    assert len(run.log_likelihood([TEXT])) == len(run.attention("the cat")) == 1
    for generate in (run.generate, run.generate_stream):
        with pytest.raises(ConfigError, match=REFUSED):
            generate(TEXT)
    with pytest.raises(SystemExit):
        main(["generate", str(refused), TEXT])
    assert "typical_p=0.9" in capsys.readouterr().err
    ignoring = runs.open_run(refused, ignore=("typical_p",))
    assert ignoring.generate(TEXT, max_new_tokens=2)


def test_settings_that_are_not_supported_stay_with_a_run(refused, tmp_path):
    runs.convert(refused, tmp_path / "run")
    with pytest.raises(ConfigError, match=REFUSED):
        runs.open_run(tmp_path / "run").generate(TEXT)
    ignoring = runs.open_run(tmp_path / "run", ignore=("typical_p",))
    assert ignoring.generate(TEXT, max_new_tokens=2)
    runs.convert(tmp_path / "run", tmp_path / "again")
    written = json.loads((tmp_path / "again" / "generation_config.json").read_text())
    assert written["typical_p"] == 0.9
    runs.convert(refused, tmp_path / "without", ignore=("typical_p",))
    assert runs.open_run(tmp_path / "without").generate(TEXT, max_new_tokens=2)
    runs.convert(refused, tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("llama", {"forced_eos_token_id": 1}),
        ("llama", {"num_beams": 3}),
        ("t5", {"repetition_penalty": 1.5}),
        ("t5", {"typical_p": 0.9}),
    ],
)
def test_settings_are_refused_for_the_kind_of_model_that_has_no_option(
    folders, tmp_path, name, settings
):
    folder = with_settings(folders(name)[0], tmp_path / "model", **settings)
    run = runs.open_run(folder)
    assert run.decoding.unsupported == settings
    ((setting, value),) = settings.items()
    if name == "t5":  # whose attention is that of the translation, if there is no other
        pairs = tiny.write(tmp_path / "pairs.tsv", [f"{TEXT}\tthe dog"])
        for use, text in ((run.attention, TEXT), (run.translate, [TEXT]), (run.evaluate, [pairs])):
            with pytest.raises(ConfigError, match=f"{setting}={value}"):
                use(text)
        assert len(run.attention(TEXT, target="the dog")) == 3
    else:
        with pytest.raises(ConfigError, match=f"beside the others: {setting}={value};"):
            run.generate(TEXT)
    assert not runs.open_run(folder, ignore=(setting,)).decoding.unsupported


DRAWN = {"do_sample": True, "temperature": 0.5, "top_k": 7}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("t5", DRAWN),
        ("t5", {"num_beams": 2, "eos_token_id": [1, 8], "max_length": 9, **DRAWN}),
        ("llama", {"num_beams": 3, "length_penalty": 0.5, "num_return_sequences": 2,
                   "max_length": 9, "eos_token_id": [1, -1], "pad_token_id": -1}),
    ],
)  # fmt: skip
def test_settings_that_are_refused_together_are_written_as_they_were(
    folders, tmp_path, name, settings
):
    folder = with_settings(folders(name)[0], tmp_path / "model", **settings)
    run = runs.open_run(folder)
    with pytest.raises(ConfigError, match="has unsupported generation settings"):
        run.translate([TEXT]) if name == "t5" else run.generate(TEXT)
    runs.convert(folder, tmp_path / "run")
    runs.convert(tmp_path / "run", tmp_path / "again")
    written = json.loads((tmp_path / "again" / "generation_config.json").read_text())
    assert settings.items() <= written.items()
    assert "max_new_tokens" not in written  # no limit that the folder does not have
