"""The page of all benchmarks."""

import importlib
import pathlib
import re
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).parents[2] / "experiments/benchmarks"


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("report")


def test_every_benchmark_is_on_the_page(report):
    scripts = {
        path.name
        for path in BENCHMARKS.glob("*.py")
        if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    }
    listed = {command.split()[0] for commands in report.BENCHMARKS.values() for command in commands}
    assert listed == scripts - {"report.py"}


def test_page_has_what_each_prints_and_says_which_failed(report, tmp_path, monkeypatch, capsys):
    (tmp_path / "experiments/benchmarks").mkdir(parents=True)
    scripts = {"good": "import sys; print('all', *sys.argv[1:])", "bad": "raise ValueError('no')"}
    for name, code in scripts.items():
        (tmp_path / f"experiments/benchmarks/{name}.py").write_text(code)
    monkeypatch.setattr(report, "REPOSITORY", tmp_path)
    monkeypatch.setattr(
        report, "BENCHMARKS", {"Good": ["good.py is 'well done'"], "Bad": ["bad.py"]}
    )
    page = tmp_path / "page.md"
    monkeypatch.setattr(sys, "argv", ["report.py", "--out", str(page)])
    with pytest.raises(SystemExit) as ended:
        report.main()
    text = page.read_text(encoding="utf-8")
    assert ended.value.code == 1
    assert re.search(r"- processor: .+\n- cores: \d+\n(.*\n)*- jax [\d.]+\n", text)
    assert "all is well done\n```\n\n## Bad" in text
    assert "failed with status 1:\nValueError: no\n```" in text
    assert "1 failed; the page is" in capsys.readouterr().out
