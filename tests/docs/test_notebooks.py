"""Every notebook runs from its first cell to its last, and is stored without outputs."""

import ast
import io
import json
import pathlib
import re

import jax
import pytest
from matplotlib.figure import Figure

from tests.docs.pages import dead_links

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOKS = sorted(ROOT.glob("docs/notebooks/*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def run_cell(name, source, namespace):
    """Runs a cell as Jupyter does; returns the value of its last line, if that is an expression."""
    tree = ast.parse(source, name)
    shown = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), namespace)
    if shown is not None:
        return eval(compile(ast.Expression(shown.value), name, "eval"), namespace)


@pytest.mark.slow  # 2 minutes of one core; the pages of docs/ run them, too
@every_notebook
def test_notebook_runs_and_shows_figures(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace, figures = {"__name__": "__main__"}, 0
    # The rank promotion that tests forbid is a reader's default.
    with jax.numpy_rank_promotion("allow"):
        for cell in read(path)["cells"]:
            if cell["cell_type"] == "code":
                name = f"{path.stem}, cell {cell['id']}"
                shown = run_cell(name, "".join(cell["source"]), namespace)
                if isinstance(shown, Figure):
                    shown.savefig(io.BytesIO())
                    figures += 1
    assert figures >= 2


@every_notebook
def test_notebook_has_a_title_and_no_outputs(path):
    notebook = read(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    title, *_ = cells = notebook["cells"]
    assert title["cell_type"] == "markdown" and title["source"][0].startswith("# ")
    ids = [cell["id"] for cell in cells]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[\w-]{1,64}", name, re.ASCII) for name in ids)
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None, cell["id"]


def test_files_that_notebooks_name_exist():
    assert len(NOTEBOOKS) >= 3
    for path in NOTEBOOKS:
        cells = read(path)["cells"]
        text = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        assert dead_links(path, text) == []
        code = "".join("".join(cell["source"]) for cell in cells)
        for name in re.findall(r"\b(?:examples|configs)/\w+\.\w+", code):
            assert (ROOT / name).exists(), f"{path.name} names {name}"
