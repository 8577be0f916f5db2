"""What the README says, run as it stands there."""

import pathlib
import re
import shlex
import tomllib

import pytest

from jaxformer.cli.overrides import override_config
from jaxformer.config import ExperimentConfig, config_from_dict, load_config

README = pathlib.Path("README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(<!--[^\n]*-->\n)?```(\w*)\n(.*?)```", README, flags=re.DOTALL)


def test_python_examples_run_and_print_what_follows_them(capsys):
    """All in one namespace, as a reader would run them; those that need a run are left out."""
    examples = [code for note, language, code in BLOCKS if language == "python" and not note]
    assert len(examples) >= 3
    namespace = {}
    # The rank promotion that tests forbid is a reader's default.
    import jax

    with jax.numpy_rank_promotion("allow"):
        for code in examples:
            exec(compile(code, "README.md", "exec"), namespace)
    printed = capsys.readouterr().out
    shown = re.findall(r"```python\n(?:(?!```).)*```\n\n```\n(.*?)```", README, flags=re.DOTALL)
    assert len(shown) >= 2
    for text in shown:
        assert text in printed


def test_examples_that_need_a_run_use_what_exists():
    from jaxformer.runs import LanguageModelTask, Run, TranslationTask

    kinds = {"runs/quickstart": LanguageModelTask, "runs/phrasebook_en_kn": TranslationTask}
    examples = [code for note, language, code in BLOCKS if language == "python" and note]
    assert len(examples) == 2
    for code in examples:
        kind = kinds[re.search(r'open_run\("([^"]+)"\)', code)[1]]
        for attribute in re.findall(r"run\.(\w+)", code):
            assert hasattr(Run, attribute) and hasattr(kind, attribute), attribute


def test_configs_named_in_commands_exist_and_their_overrides_too():
    commands = [
        line
        for _, language, code in BLOCKS
        if language == "bash"
        for line in code.splitlines()
        if "jaxformer train" in line
    ]
    assert len(commands) >= 3
    for command in commands:
        words = shlex.split(command.split("jaxformer train", 1)[1], comments=True)
        override_config(load_config(words[0]), words[1:], prog="jaxformer train")


def test_toml_examples_are_parts_of_configs():
    examples = [code for _, language, code in BLOCKS if language == "toml"]
    assert examples
    quickstart = pathlib.Path("configs/quickstart.toml").read_text(encoding="utf-8")
    values = tomllib.loads(quickstart)
    for code in examples:
        for table, keys in tomllib.loads(code).items():
            values[table] |= keys
    config_from_dict(ExperimentConfig, values)


@pytest.mark.parametrize("path", re.findall(r"\]\(((?!http)[^)]+)\)", README))
def test_links_lead_to_files(path):
    assert pathlib.Path(path).exists()
