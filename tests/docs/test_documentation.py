"""What the README and the pages of docs/ say, run as it stands there."""

import pathlib
import re
import shlex
import shutil
import tomllib

import jax
import pytest

from jaxformer.cli import main
from jaxformer.cli.overrides import override_config
from jaxformer.config import ExperimentConfig, config_from_dict, load_config
from tests.runs import tiny

PAGES = [pathlib.Path("README.md"), *sorted(pathlib.Path("docs").rglob("*.md"))]
PAGES = [path for path in PAGES if "_build" not in path.parts]
BLOCK = re.compile(r"```(\w*)\n(.*?)```", flags=re.DOTALL)


def blocks(page, language):
    """The blocks of a page in a language."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [code for name, code in found if name == language]


def pages_with(language):
    return [pytest.param(page, id=str(page)) for page in PAGES if blocks(page, language)]


def commands(page):
    """Command lines of a page that start the library, as words."""
    lines = [line for code in blocks(page, "bash") for line in code.splitlines()]
    return [
        shlex.split(line[line.index("jaxformer ") :], comments=True)
        for line in lines
        if re.search(r"(^|&& )jaxformer ", line.partition("#")[0])
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, translation_run, classification_run, masked_run):
    """A folder with small runs under the names that the pages use, and the files that they read."""
    folder = tmp_path_factory.mktemp("documentation")
    sentences = ["one two", "six five one"]
    prompt = ["The assert statement is a statement"] * 40
    text = tiny.write(folder / "other.txt", prompt)
    tiny.write(folder / "sentences.txt", sentences)
    decoder = tiny.config(
        folder,
        architecture="decoder",
        data={"source": "files", "paths": (text,), "validation_fraction": 0.2},
        tokenizer={"kind": "character"},
        model={"max_len": 64},
        training={"steps": 500, "eval_every": 400, "checkpoint_every": 400, "log_every": 100},
    )
    tiny.train(decoder)
    runs = folder / "runs"
    runs.mkdir()
    (folder / "run").rename(runs / "quickstart")
    for name, run in {
        "poems": runs / "quickstart",
        "phrasebook_en_kn": translation_run[0],
        "narrow": translation_run[0],
        "phrasebook_topics": classification_run[0],
        "masked_python": masked_run[0],
    }.items():
        shutil.copytree(run, runs / name)
    return folder


@pytest.mark.filterwarnings("ignore:never seen in training")  # by a small run's few words
@pytest.mark.parametrize("page", pages_with("python"))
def test_python_cells_run_and_print_what_follows_them(page, capsys, trained, monkeypatch):
    """All of a page in one namespace, as a reader would run them."""
    content, namespace = page.read_text(encoding="utf-8"), {"__name__": "__main__"}
    cells = blocks(page, "python")
    monkeypatch.chdir(trained)
    # The rank promotion that tests forbid is a reader's default.
    with jax.numpy_rank_promotion("allow"):
        for code in cells:
            exec(compile(code, str(page), "exec"), namespace)
    printed = capsys.readouterr().out
    for text in re.findall(r"```python\n(?:(?!```).)*```\n\n```\n(.*?)```", content, re.DOTALL):
        assert text in printed


@pytest.mark.parametrize("page", [page for page in pages_with("bash") if commands(page.values[0])])
def test_commands_run(page, trained, monkeypatch):
    """Those of `train` are read with the configs and flags that they name; all others run."""
    for _, command, *words in commands(page):
        if command == "train":
            override_config(load_config(words[0]), words[1:], prog="jaxformer train")
            continue
        with monkeypatch.context() as patch:
            patch.chdir(trained)
            main([command, *words[: words.index(">") if ">" in words else None]])


@pytest.mark.parametrize("page", pages_with("toml"))
def test_toml_examples_are_parts_of_configs(page):
    for code in blocks(page, "toml"):
        values = tomllib.loads(pathlib.Path("configs/quickstart.toml").read_text(encoding="utf-8"))
        for table, keys in tomllib.loads(code).items():
            values[table] |= keys
        config_from_dict(ExperimentConfig, values)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(((?!http)[^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
