"""The command line from start to end on a tiny config, and every user's mistake in one line."""

import io
import json
import shutil
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from jaxformer.cli import main
from jaxformer.cli.train import _print
from jaxformer.config import LionConfig, RotaryConfig, SamplingConfig, load_config
from jaxformer.errors import ConfigError, DataError
from jaxformer.runs import LanguageModelTask, open_run

TEXT = "the cat sat on the mat; the dog sat on the log.\n" * 40

CONFIG = """
out = "{out}"
[data]
source = "files"
paths = ["{text}"]
validation_fraction = 0.2
[tokenizer]
kind = "character"
[model]
max_len = 32
num_layers = 2
layer_execution = "scan"
d_model = 16
num_heads = 2
dropout_rate = 0.1
[optimizer]
learning_rate = 3e-2
[schedule]
name = "cosine"
warmup_steps = 2
decay_steps = 30
[training]
steps = 20
batch_size = 8
devices = 2
log_every = 5
eval_every = 10
checkpoint_every = 10
[samples]
prompts = ["the c", "the d", "on"]
max_new_tokens = 12
temperature = 0.8
top_k = 5
"""


def write_config(folder, **changes):
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    values = {"out": folder / "run", "text": folder / "text.txt"}
    text = CONFIG.format(**{key: value.as_posix() for key, value in values.items()})
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module", autouse=True)
def cache_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run: its folder of everything, and what the command printed."""
    import contextlib
    import io

    folder = tmp_path_factory.mktemp("cli")
    config, out = write_config(folder), io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["train", str(config)])
    return folder, out.getvalue()


def one_line(capsys, *words):
    """Runs a command that must fail as a user's mistake, and returns its one line."""
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.count("\n") == 1 and error.startswith("jaxformer: error: "), error
    return error


def test_training_prints_settings_samples_loss_and_folder(trained):
    folder, out = trained
    assert out.startswith("a language model, which continues text; settings other than the default")
    assert "\n  [optimizer] learning_rate = 0.03\n" in out and "num_kv_heads" not in out
    assert "vocab_size = " in out  # which the data decides
    assert "step 20/20" in out and "layers run as a scan: model.layer_execution says so" in out
    for prompt in ("the c", "the d", "on"):
        assert f"--- '{prompt}'\n{prompt}" in out
    assert out.count("step 20: validation loss ") == out.count("bits per byte") - 1 == 1
    assert out.endswith(f"run folder: {folder / 'run'}\n")


def test_run_folder_holds_everything(trained):
    folder = trained[0] / "run"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "config.toml", "tokenizer.json", "metrics.jsonl", "tensorboard", "checkpoints",
        "samples.txt", "loss.png", "validation.json", "data.json",
    }  # fmt: skip
    assert (folder / "loss.png").stat().st_size > 5000
    assert load_config(folder / "config.toml").model.vocab_size is not None
    assert (folder / "samples.txt").read_text(encoding="utf-8").count("---") == 3
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        json.loads(line)


def test_training_learns(trained):
    records = (trained[0] / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    losses = [json.loads(line)["loss"] for line in records if '"loss"' in line]
    assert losses[-1] < 0.8 * losses[0]


def test_evaluate_prints_the_loss_that_training_ended_with(trained, capsys):
    folder, out = trained
    main(["evaluate", str(folder / "run")])
    printed = capsys.readouterr().out
    loss = out.split("step 20: validation loss ")[-1].splitlines()[0]
    assert printed.startswith(f"validation loss at step 20: {loss}, over ")


def test_evaluate_measures_other_text(trained, tmp_path, capsys):
    (tmp_path / "other.txt").write_text("the dog sat on the cat.\n" * 20, encoding="utf-8")
    main(["evaluate", str(trained[0] / "run"), "--data", str(tmp_path / "other.txt")])
    printed = capsys.readouterr().out
    evaluation = open_run(trained[0] / "run").evaluate([tmp_path / "other.txt"])
    assert printed == f"loss at step 20: {evaluation}, over 479 tokens\n"
    assert evaluation.loss > open_run(trained[0] / "run").evaluate().loss
    words = ("evaluate", trained[0] / "run", "--data")
    assert "absent.txt" in one_line(capsys, *words, tmp_path / "absent.txt")
    (tmp_path / "other.txt").write_text("Zebra", encoding="utf-8")
    assert "'Z'" in one_line(capsys, *words, tmp_path / "other.txt")


def test_bits_per_byte_of_a_character_model_follow_from_its_loss(trained):
    """One ASCII character is one byte and one token, so the two measures agree."""
    evaluation = open_run(trained[0] / "run").evaluate()
    assert evaluation.bits_per_byte == pytest.approx(evaluation.loss / np.log(2), rel=1e-6)
    assert evaluation.perplexity == pytest.approx(np.exp(evaluation.loss))


def test_generate_streams_the_prompt_and_its_continuation(trained, capsys):
    words = ["generate", str(trained[0] / "run"), "--prompt", "the c", "--max-new-tokens", "9"]
    texts = []
    for extra in (["--temperature", "0"], ["--temperature", "0", "--seed", "1"],
                  ["--seed", "1"], ["--seed", "2"], ["--seed", "2"]):  # fmt: skip
        main(words + extra)
        texts.append(capsys.readouterr().out)
    assert all(text.startswith("the c") and len(text) <= 5 + 9 + 1 for text in texts)
    assert texts[0] == texts[1] and texts[3] == texts[4] and texts[2] != texts[3]


def test_generate_samples_as_the_run_says_where_it_is_not_told_otherwise(trained, capsys):
    """The command and Python alike; a flag and a keyword replace one setting each."""
    run, asked = open_run(trained[0] / "run"), []
    words = ["generate", str(run.folder), "--prompt", "the c", "--max-new-tokens", "9"]
    own = {"temperature": 0.8, "top_k": 5}
    main([*words, "--seed", "3"])
    text = run.generate("the c", max_new_tokens=9, seed=3)
    assert capsys.readouterr().out == f"the c{text}\n" and len(text) == 9
    pieces = list(run.generate_stream("the c", max_new_tokens=9, seed=3, **own))
    assert "".join(pieces) == text and len(pieces) > 2

    def stream(self, params, prompt, *, rng, sampling, max_new_tokens):
        asked.append((np.asarray(jax.random.key_data(rng)).tolist(), sampling, max_new_tokens))
        return iter([""])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LanguageModelTask, "generate_stream", stream)
        main([*words, "--top-k", "None", "--min-p", "0.1"])
        run.generate("the c", max_new_tokens=9, top_k=None, min_p=0.1)
        run.generate("the c", temperature=0.0)
    changed = SamplingConfig(temperature=0.8, min_p=0.1)
    greedy = SamplingConfig(temperature=0.0, top_k=5)
    assert asked == [([0, 0], changed, 9), ([0, 0], changed, 9), ([0, 0], greedy, None)]


def test_generate_refuses_options_that_it_does_not_have(trained, capsys):
    run = open_run(trained[0] / "run")
    message = "no option 'max_tokens'; the options are .*min_p, seed, max_new_tokens$"
    with pytest.raises(ConfigError, match=message):
        run.generate("the c", max_tokens=3)
    words = ("generate", run.folder, "--prompt", "the c")
    assert "seed must be an integer in 0 .. 2**31 - 1" in one_line(capsys, *words, "--seed", -1)
    assert "top_p must be in (0, 1]" in one_line(capsys, *words, "--top-p", 0)


def test_encode_and_decode_are_the_tokenizers(trained):
    run = open_run(trained[0] / "run")
    ids = run.encode(" the cat ")
    assert ids.tolist() == run.task.tokenizer.encode(" the cat ").tolist()
    assert run.decode(ids) == run.decode(ids.tolist()) == " the cat "
    size = run.task.tokenizer.vocab_size
    with pytest.raises(DataError, match=f"at least 0 and less than vocab_size={size}, got -1"):
        run.decode([0, -1])
    with pytest.raises(DataError, match="must be integers .* got float64 of shape .1,."):
        run.decode([0.5])


def test_generate_fills_the_context_when_not_told_how_much(trained, capsys):
    main(["generate", str(trained[0] / "run"), "--prompt", "the c", "--top-k", "1"])
    out = capsys.readouterr().out
    assert len(out.removesuffix("\n")) == 32  # characters are tokens, and none is the last


def test_empty_prompt_needs_documents_to_start(trained, capsys):
    """The end of text that it would start from never occurs in a single text."""
    assert "prompt is empty" in one_line(capsys, "generate", trained[0] / "run", "--prompt", "")


def test_run_goes_on_with_more_steps_bitwise(trained, tmp_path):
    """20 + 10 steps in two commands equal 30 in one."""
    longer = {"training": ("steps = 20", "steps = 30")}
    whole = tmp_path / "whole"
    whole.mkdir()
    main(["train", str(write_config(whole, **longer))])
    parts = tmp_path / "parts"
    parts.mkdir()
    config = write_config(parts)
    main(["train", str(config)])
    main(["train", str(config), "--training.steps", "30"])
    one, two = (open_run(folder / "run", step=30) for folder in (whole, parts))

    jax.tree.map(np.testing.assert_array_equal, one.params, two.params)


def test_packed_documents_words_and_one_device_train_too(tmp_path, capsys):
    """The options that the other tests leave at their defaults, in one run."""
    split_lines(tmp_path)
    config = write_config(
        tmp_path,
        paths=("text.txt", "texts/*.txt"),
        kind=('kind = "character"', 'kind = "word"\nvocab_size = 30'),
        packing=("[tokenizer]", 'packing = "documents"\n[tokenizer]'),
        runner=("devices = 2", 'runner = "single"\naccumulate_steps = 2'),
        model=("dropout_rate", 'remat = "dots"\ndtype = "bfloat16"\ndropout_rate'),
        samples=("temperature = 0.8", "temperature = 0.0\nrepetition_penalty = 1.2"),
        schedule=("steps = 20", "steps = 40"),
    )
    main(["train", str(config)])
    out = capsys.readouterr().out
    assert "--- 'the d'\nthe d" in out
    run = open_run(tmp_path / "run")
    assert run.task.tokenizer.vocab_size <= 30 and run.task.tokenizer.end_of_text is not None
    evaluation = run.evaluate()
    assert evaluation.perplexity < 10  # of 20 words, most of which follow from the last
    # All tokens but the first of each document, and their bytes: spaces cost a word model nothing.
    validation = run.task.load_validation(run.folder)
    documents = np.split(validation.stream.tokens, validation.stream.offsets[1:])
    assert len(documents) == 8
    assert evaluation.predicted == sum(document.size - 1 for document in documents)
    assert "prompt is empty" in one_line(capsys, "generate", run.folder, "--prompt", "")
    # The prompt's last word and the continuation's first are two words.
    main(["generate", str(run.folder), "--prompt", "the cat", "--top-k", "1"])
    assert capsys.readouterr().out.startswith("the cat ")


def test_chosen_checkpoint_is_used(trained, capsys):
    folder = trained[0] / "run"
    main(["evaluate", str(folder), "--step", "10"])
    assert capsys.readouterr().out.startswith("validation loss at step 10: ")
    assert "no checkpoint of step 11, only [10, 20]" in one_line(
        capsys, "evaluate", folder, "--step", "11"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("num_heads = 2", "num_head = 2"), "unknown key model.num_head; did you mean 'num_heads'"),
        (("num_layers = 2", ""), "missing key model.num_layers (an integer)"),
        (("d_model = 16", "d_model = 15"), "d_model must be a multiple of num_heads"),
        (("steps = 20", 'steps = "20"'), "training.steps must be an integer, got '20'"),
        (('kind = "character"', 'kind = "chars"'), "kind must be one of character"),
        (("batch_size = 8", "batch_size = 9"), "must be a multiple of devices * accumulate_steps"),
        (("devices = 2", "devices = 99"), "training.devices=99, but this machine has 8"),
        (("paths =", "validation_paths ="), "'files' needs data.paths"),
        (("text.txt", "absent.txt"), "absent.txt"),
        (("warmup_steps = 2", "warmup_steps = 30"), "decay_steps must be larger"),
        (
            ("learning_rate", "lr"),
            "unknown key optimizer.lr; the keys here are name, learning_rate",
        ),
        (("dropout_rate", "learning_rate"), "did you mean 'optimizer.learning_rate'?"),
        (("[data]", "[data"), "not a TOML file"),
        (("max_len = 32", "max_len = 32\nvocab_size = 3"), "vocab_size must be at least"),
    ],
)
def test_config_mistakes_get_one_line(tmp_path, capsys, change, message):
    assert message in one_line(capsys, "train", write_config(tmp_path, change=change))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "empty"), (b"caf\xe9 au lait " * 50, "UTF-8")],
)
def test_unusable_text_gets_one_line(tmp_path, capsys, content, message):
    config = write_config(tmp_path)
    (tmp_path / "text.txt").write_bytes(content)
    error = one_line(capsys, "train", config)
    assert message in error and "text.txt" in error


def test_missing_config_names_its_neighbours(tmp_path, capsys):
    write_config(tmp_path)
    error = one_line(capsys, "train", tmp_path / "tinny.toml")
    assert "no such config file" in error and "tiny.toml" in error


def test_wrong_override_names_the_option(tmp_path, capsys):
    error = one_line(capsys, "train", write_config(tmp_path), "--model.num-head", "4")
    assert "--model.num-heads" in error


def test_override_reaches_a_table_within_a_table(tmp_path, capsys, monkeypatch):
    configs = []

    def train_run(config, *, on_start):
        configs.append(config)
        raise ConfigError("enough")

    monkeypatch.setattr("jaxformer.runs.train_run", train_run)
    flags = ("--model.positions.base", "5e5", "--optimizer.name", "lion")
    one_line(capsys, "train", write_config(tmp_path), *flags)
    assert configs[0].model.positions == RotaryConfig(base=5e5)
    assert configs[0].optimizer == LionConfig(learning_rate=3e-2)
    error = one_line(capsys, "train", write_config(tmp_path), "--model.positions", "alibbi")
    assert "--model.positions must be one of none" in error and "mean 'alibi'?" in error


def test_impossible_override_is_a_mistake_too(tmp_path, capsys):
    error = one_line(capsys, "train", write_config(tmp_path), "--model.d-model", "15")
    assert "d_model must be a multiple of num_heads" in error


def test_prompt_that_does_not_fit_gets_one_line(trained, capsys):
    run = trained[0] / "run"
    error = one_line(capsys, "generate", run, "--prompt", "the cat " * 9)
    assert "72 tokens" in error and "context of 32" in error
    error = one_line(capsys, "generate", run, "--prompt", "the", "--max-new-tokens", "30")
    assert "ask for at most 29" in error


def test_unknown_character_gets_one_line(trained, capsys):
    assert "'Z'" in one_line(capsys, "generate", trained[0] / "run", "--prompt", "Zebra")


def test_folder_that_is_no_run_gets_one_line(tmp_path, capsys):
    assert "it has no config.toml" in one_line(capsys, "evaluate", tmp_path)
    missing = tmp_path / "missing"
    assert "no such folder" in one_line(capsys, "generate", missing, "--prompt", "a")
    assert not missing.exists()


def test_folder_of_something_else_is_left_alone(tmp_path, capsys):
    config = write_config(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    error = one_line(capsys, "train", config)
    assert "not a run folder" in error and "thesis.txt" in error
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_run_of_another_config_is_left_alone(trained, capsys):
    folder = trained[0]
    before = (folder / "run" / "config.toml").read_bytes()
    error = one_line(capsys, "train", folder / "tiny.toml", "--optimizer.learning-rate", "0.1")
    assert "optimizer.learning_rate: 0.03 there, 0.1 now" in error
    assert f"--out NEW: from nothing, or from its weights by --init-from {folder / 'run'}" in error
    assert (folder / "run" / "config.toml").read_bytes() == before


def test_run_is_not_continued_on_another_text(trained, tmp_path, capsys):
    text = trained[0] / "text.txt"
    text.write_text(TEXT.replace("dog", "god"), encoding="utf-8")
    try:
        assert "another text" in one_line(capsys, "train", trained[0] / "tiny.toml")
    finally:
        text.write_text(TEXT, encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda run: (run / "validation.json").write_bytes(b""), "validation.json"),
        (lambda run: truncate(run / "validation.json"), "validation.json"),
        (lambda run: (run / "validation.json").unlink(), "validation.json"),
        (lambda run: truncate(run / "tokenizer.json"), "tokenizer.json"),
        (lambda run: (run / "config.toml").unlink(), "has no config.toml"),
        (lambda run: truncate(run / "config.toml"), "config.toml"),
        (lambda run: shutil.rmtree(run / "checkpoints"), "has no checkpoint"),
        (lambda run: shutil.rmtree(run / "checkpoints/20/params"), "checkpoints/20 is damaged"),
        (lambda run: (run / "checkpoints/20/params/_METADATA").write_text("{}"), "is damaged"),
    ],
)
def test_damaged_run_gets_one_line(trained, tmp_path, capsys, damage, named):
    run = tmp_path / "run"
    shutil.copytree(trained[0] / "run", run)
    damage(run)
    assert named in one_line(capsys, "evaluate", run, "--step", "20")


@pytest.mark.parametrize("content", ["{", "{}", "[]"])
def test_damaged_summary_gets_one_line(trained, tmp_path, capsys, content):
    run = tmp_path / "run"
    shutil.copytree(trained[0] / "run", run)
    (run / "data.json").write_text(content)
    words = ("train", trained[0] / "tiny.toml", "--out", run)
    assert "data.json is missing or damaged" in one_line(capsys, *words)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_refused_command_changes_no_file(trained, capsys):
    folder = trained[0] / "run"
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    config = trained[0] / "tiny.toml"
    error = one_line(capsys, "train", config, "--training.steps", "4")
    assert "trained to step 20 already, got steps=4" in error
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("name", ["data.json", "tokenizer.json", "validation.json"])
def test_file_with_a_name_of_ours_is_left_alone(tmp_path, capsys, name):
    config = write_config(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("mine")
    assert name in one_line(capsys, "train", config)
    assert (tmp_path / "run" / name).read_text() == "mine"


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("text.txt/run", "cannot be a run folder"),
        ("text.txt", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("runs[1]/a", "the path of a run folder must not have [ or ], got /"),
    ],
)
def test_impossible_out_gets_one_line(tmp_path, capsys, out, message):
    config = write_config(tmp_path)
    assert message in one_line(capsys, "train", config, "--out", tmp_path / out)
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt", "tiny.toml"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('"the d"', '"the D"'), "samples.prompts has 'the D': every character must be"),
        (("max_new_tokens = 12", "max_new_tokens = 30"), "samples.prompts has 'the c'"),
    ],
)
def test_samples_that_cannot_be_are_refused_before_training(tmp_path, capsys, change, message):
    assert message in one_line(capsys, "train", write_config(tmp_path, change=change))
    assert not (tmp_path / "run").exists()


def test_validation_text_may_not_be_trained_on(tmp_path, capsys):
    text = (tmp_path / "text.txt").as_posix()
    config = write_config(
        tmp_path, change=("[tokenizer]", f'validation_paths = ["{text}"]\n[tokenizer]')
    )
    assert "got a document in both" in one_line(capsys, "train", config)


def test_what_standard_output_cannot_show_does_not_end_a_run(monkeypatch):
    latin = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", latin)
    _print("caf\xe9 \u0ca8")
    latin.flush()
    assert latin.buffer.getvalue() == b"caf\xe9 \\u0ca8\n"


def split_lines(folder):
    """Writes each line of the text to a file of its own: several documents."""
    (folder / "texts").mkdir()
    for index, line in enumerate(TEXT.splitlines()):
        path = folder / "texts" / f"{index:02}.txt"
        path.write_text(f"{index} {line}\n", encoding="utf-8")


def test_prompts_are_taken_from_the_validation_text(tmp_path, capsys):
    """And ids that the vocabulary has beyond the tokenizer's are never drawn."""
    split_lines(tmp_path)
    config = write_config(
        tmp_path,
        paths=("text.txt", "texts/*.txt"),
        prompts=('prompts = ["the c", "the d", "on"]\nmax_new_tokens = 12', ""),
        vocabulary=("max_len = 32", "max_len = 32\nvocab_size = 300"),
        steps=("steps = 20", "steps = 1"),
    )
    main(["train", str(config)])
    run = open_run(tmp_path / "run")
    lines = " ".join(path.read_text() for path in (tmp_path / "texts").iterdir())
    assert len(set(run.config.samples.prompts)) == 3
    assert all(prompt in lines for prompt in run.config.samples.prompts)
    # An untrained model ends a text rarely: the samples fill the context.
    samples = (run.folder / "samples.txt").read_text(encoding="utf-8").split("--- ")[1:]
    assert max(len(sample) for sample in samples) > 32
    # Windows run on from one document to the next, so that an empty prompt starts one.
    capsys.readouterr()
    main(["generate", str(run.folder), "--prompt", "", "--max-new-tokens", "9"])
    assert capsys.readouterr().out.strip()


def test_config_behind_two_dashes_trains_too(trained, capsys):
    main(["train", "--", str(trained[0] / "tiny.toml")])
    assert f"run folder: {trained[0] / 'run'}" in capsys.readouterr().out


def test_interrupt_exits_130_without_a_traceback(monkeypatch, capsys, trained):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("jaxformer.runs.open_run", interrupted)
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", str(trained[0] / "run")])
    assert stopped.value.code == 130 and capsys.readouterr().err == "\n"


def test_help_answers_within_two_seconds_without_jax():
    start = time.monotonic()
    code = (
        "import sys\n"
        "from jaxformer.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as stopped:\n    assert not stopped.code\n"
        "assert 'jax' not in sys.modules, 'jax was imported'\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    elapsed = time.monotonic() - start
    assert result.returncode == 0, result.stderr
    for command in ("train", "generate", "evaluate"):
        assert command in result.stdout
    assert elapsed < 2, f"{elapsed:.1f} s"
