"""What the README and the pages of docs/ say, run as it stands there.

To run cells and commands takes minutes, so these tests are thorough; .ci/run runs them on one
Python.
"""

import json
import pathlib
import re
import shlex
import shutil
import sys
import tomllib
import unittest.mock

import jax
import pytest

from jaxformer import runs
from jaxformer.cli import main
from jaxformer.cli.commands import COMMANDS
from jaxformer.cli.commands.sweep import read_sweep
from jaxformer.cli.experiment import config_tables, merged_config
from jaxformer.cli.parsing import Command
from jaxformer.config import ExperimentConfig, ModelConfig, config_from_dict, load_config
from jaxformer.config.depth import at_depth
from jaxformer.interop import HuggingFaceModel, save_huggingface
from jaxformer.models import Decoder
from jaxformer.storage import as_path
from jaxformer.text import byte_tokenizer
from tests.docs.pages import blocks, dead_links, run
from tests.runs import pretrained_folders, tiny

PAGES = [pathlib.Path("README.md"), *sorted(pathlib.Path("docs").rglob("*.md"))]
PAGES = [path for path in PAGES if "_build" not in path.parts]
COMMAND = re.compile(r"(^|&& )jaxformer ")


def read(page):
    return page.read_text(encoding="utf-8")


def pages_with(language):
    return [pytest.param(page, id=str(page)) for page in PAGES if blocks(read(page), language)]


def commands(page):
    """Command lines of a page that start the library, as words."""
    lines = [line for code in blocks(read(page), "bash") for line in code.splitlines()]
    named = [line for line in lines if re.search(r"\bjaxformer [a-z]", line.partition("#")[0])]
    assert all(map(COMMAND.search, named)), f"{page} has a command that is not read"
    return [shlex.split(line[COMMAND.search(line).end() :], comments=True) for line in named]


FEW_STEPS = {
    "runner": "single", "devices": None, "steps": 2, "eval_every": 2, "checkpoint_every": 2,
    "log_every": 1,
}  # fmt: skip
TEXT = ["the assert statement is a statement"] * 40


def train(folder, name, architecture, source, lines, profile=None, **changes):
    """Trains for two steps in runs/NAME."""
    suffix = "jsonl" if source == "conversations" else "txt"
    data = {"source": source, "paths": (tiny.write(folder / f"{name}.{suffix}", lines),)}
    data |= {"validation_fraction": 0.2}
    place = folder / "trained" / name  # not the name alone, which stands for a built-in config
    place.mkdir(parents=True)
    tiny.train(
        tiny.config(
            place,
            architecture=architecture,
            data=data,
            training=FEW_STEPS,
            **{"model": {"max_len": 64}} | changes,
        ),
        profile=profile,
    )
    (place / "run").rename(folder / "runs" / name)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with small runs under the names that the pages use, and the files that they read."""
    folder = tmp_path_factory.mktemp("documentation")
    (folder / "runs").mkdir()
    tiny.write(folder / "other.txt", TEXT)
    tiny.write(folder / "sentences.txt", ["one two", "six five one"])
    rows = [f"{line}\t{line}" for line in ("one", "two", "one two", "two one")] * 4
    characters = {"tokenizer": {"kind": "character"}}
    prompts = [*TEXT, "The assert statement"]
    train(folder, "quickstart", "decoder", "files", prompts, **characters)
    train(folder, "traced", "decoder", "files", TEXT, profile=range(2, 3))
    train(folder, "phrasebook_en_kn", "encoder_decoder", "pairs", rows)
    train(folder, "phrasebook_topics", "encoder", "labelled", rows)
    train(folder, "masked_python", "encoder", "files", TEXT)
    chats = [
        {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text}]}
        for text in ("one", "two", "one two", "two one") * 4
    ]
    train(folder, "phrasebook_chat", "decoder", "conversations", map(json.dumps, chats))
    for copy, of in {
        "poems": "quickstart",
        "large": "quickstart",
        "narrow": "phrasebook_en_kn",
    }.items():
        shutil.copytree(folder / "runs" / of, folder / "runs" / copy)
    tokenizer = byte_tokenizer()
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size, max_len=64, num_layers=1, d_model=8, num_heads=2,
        positions="learned",
    )  # fmt: skip
    params = Decoder(config).init_params(jax.random.key(0))
    model = HuggingFaceModel(config, params, tokenizer)
    save_huggingface(folder / "downloads" / "gpt2", model)
    pretrained_folders.bert(folder / "downloads" / "bert-base-uncased")
    pretrained_folders.t5(folder / "downloads" / "opus-mt-en-dra")
    tiny.write(folder / "poems.txt", TEXT)
    return folder


@pytest.mark.parametrize(
    "page",
    # test_coming_from.py runs the cells of its page.
    [page for page in pages_with("python") if page.id != "docs/coming-from.md"],
)
def test_python_cells_run_and_print_what_follows_them(page, capsys, trained, monkeypatch):
    """All of a page in one namespace, as a reader would run them."""
    content, namespace = read(page), {"__name__": "__main__"}
    # The pages call lm-eval, which is an optional package and downloads its tasks.
    monkeypatch.setitem(sys.modules, "lm_eval", unittest.mock.Mock())
    harness_model = unittest.mock.create_autospec(runs.harness_model)
    monkeypatch.setattr(runs, "harness_model", harness_model)
    monkeypatch.chdir(trained)
    # The rank promotion that tests forbid is a reader's default.
    with jax.numpy_rank_promotion("allow"):
        for code in blocks(content, "python"):
            run(code, str(page), namespace)
    printed = capsys.readouterr().out
    shown = re.findall(r"```python\n(?:(?!```).)*```\n\n```\n(.*?)```", content, re.DOTALL)
    assert len(shown) == len(blocks(content, ""))
    for text in shown:
        assert text in printed


@pytest.mark.parametrize("page", [page for page in pages_with("bash") if commands(page.values[0])])
def test_commands_run(page, trained, monkeypatch, emulator):
    """Of `train`, `sweep` and `prepare` configs and flags are read, all others run."""
    if "gs://my-bucket" in read(page):
        put_into_bucket(trained / "runs" / "quickstart", emulator, monkeypatch)
    for command, *words in commands(page):
        if command in ("sweep", "train", "prepare"):
            values = Command.of(command, COMMANDS[command]).parse(words)
            config, flags = values["config"], values["flags"]
            if command == "sweep":
                assert len(read_sweep(config, flags)[1]) > 1
                continue
            run_folder = trained / config
            path = str(run_folder) if run_folder.is_dir() else config
            merged_config(path, config_tables(path, {}), flags)
            continue
        with monkeypatch.context() as patch:
            patch.chdir(trained)
            evaluate_tasks = unittest.mock.create_autospec(runs.evaluate_tasks, return_value="")
            patch.setattr(runs, "evaluate_tasks", evaluate_tasks)  # needs lm-eval
            main([command, *words[: words.index(">") if ">" in words else None]])


def put_into_bucket(run, emulator, monkeypatch):
    """Makes the bucket that the pages name, with a run of the same name."""
    for name, value in emulator.environment().items():
        monkeypatch.setenv(name, value)
    emulator.add_bucket("my-bucket")
    for path in run.rglob("*"):
        if path.is_file():
            target = as_path(f"gs://my-bucket/runs/{run.name}/{path.relative_to(run)}")
            target.write_bytes(path.read_bytes())


@pytest.mark.parametrize("page", pages_with("toml"))
def test_toml_examples_are_parts_of_configs(page):
    for code in blocks(read(page), "toml"):
        values = tomllib.loads(pathlib.Path("configs/quickstart.toml").read_text(encoding="utf-8"))
        for table, keys in tomllib.loads(code).items():
            values[table] = {**values.get(table, {}), **keys} if isinstance(keys, dict) else keys
        config_from_dict(ExperimentConfig, at_depth(values, None))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_to_files(page):
    assert dead_links(page, read(page)) == []


def smallest_config(folder):
    """Writes the config that docs/train.md calls the smallest, and its text; returns its path."""
    code = next(block for block in blocks(read(pathlib.Path("docs/train.md")), "toml"))
    text = tiny.write(folder / "my_text.txt", [f"{TEXT[0]} {index}" for index in range(150)])
    path = folder / "my.toml"
    path.write_text(code.replace("my_text.txt", text), encoding="utf-8")
    return path


def test_smallest_config_has_five_keys(tmp_path):
    values = tomllib.loads(smallest_config(tmp_path).read_text(encoding="utf-8"))
    assert sum(map(len, values.values())) == 5
    config = load_config(tmp_path / "my.toml")
    assert config.model.max_len == 128 and config.training.steps == 1000


def test_smallest_config_trains(tmp_path, capsys, monkeypatch):
    path, words = smallest_config(tmp_path), "--training.steps 2 --training.runner single"
    monkeypatch.chdir(tmp_path)
    main(["train", str(path), *words.split()])
    assert "run folder: runs/my" in capsys.readouterr().out
