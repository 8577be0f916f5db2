import pytest

from tests.cli.commands import TEXT, one_line, output, split_lines, write_config


@pytest.fixture(scope="module")
def inspected(tmp_path_factory):
    return write_config(tmp_path_factory.mktemp("inspect"))


def test_inspect_prints_figures_and_rows_and_makes_no_run_folder(inspected, capsys):
    before = sorted(inspected.parent.iterdir())
    printed = output(capsys, "inspect", inspected, "--rows", 2, "--training.batch-size", 16).out
    assert sorted(inspected.parent.iterdir()) == before
    lines = printed.splitlines()
    train = 0.8 * len(TEXT) + 1  # 32 of the 40 lines, and the end of text
    assert f"training     1 document, {train:,.0f} tokens" in lines
    windows = -(-(train - 1) // 32)
    assert lines[3].startswith(f"epoch        {windows / 16:.3g} steps; training.steps = 20 is ")
    assert "loss         512 of 512 labels are counted; each label is one token" in lines
    assert lines[lines.index("row 1") - 2] == "row 0" and "row 2" not in lines
    row = lines[lines.index("row 0") + 1]
    plain = row.strip().replace("‹", "").replace("›", "").replace("\\n", "\n")
    assert row.startswith("  ‹") and plain in TEXT and 31 <= len(plain) <= 33


def test_inspect_says_how_long_the_documents_are(tmp_path, capsys):
    config = write_config(tmp_path)
    split_lines(tmp_path)
    flags = ["--data.paths", tmp_path / "texts" / "*.txt", "--data.packing", "documents"]
    lines = output(capsys, "inspect", config, *flags, "--rows", 0).out.splitlines()
    assert "lengths      training documents: 46 to 52 tokens, median 52" in lines


def test_step_chooses_the_batch_and_may_be_beyond_the_last(inspected, capsys):
    first, later, again = (
        output(capsys, "inspect", inspected, "--step", step).out for step in (0, 1000, 1000)
    )
    every = output(capsys, "inspect", inspected, "--rows", 10**9).out
    assert every.count("\nrow ") == 8 and every.startswith(first.partition("row 0")[0])
    assert later == again and "of step 1,000:" in later
    assert first.partition("row 0")[2] != later.partition("row 0")[2]


@pytest.mark.parametrize("columns", [40, 130])
def test_lines_are_as_wide_as_the_terminal_and_long_rows_are_cut(
    inspected, capsys, monkeypatch, columns
):
    monkeypatch.setenv("COLUMNS", str(columns))
    flags = ["--model.max-len", 1200, "--tokenizer.kind", "byte"]
    lines = output(capsys, "inspect", inspected, *flags).out.splitlines()
    assert 0.9 * columns < max(map(len, lines)) <= columns and lines[-1].endswith("...")


def test_a_single_text_is_counted_in_the_singular(tmp_path, capsys):
    (tmp_path / "rows.tsv").write_text("a red\tcolour\na cat\tanimal\n", encoding="utf-8")
    (tmp_path / "held.tsv").write_text("a cat\tanimal\n", encoding="utf-8")
    flags = ["--data.source", "labelled", "--data.paths", tmp_path / "rows.tsv"]
    flags += ["--data.validation-paths", tmp_path / "held.tsv", "--training.devices", 1]
    printed = output(capsys, "inspect", "phrasebook_topics", *flags).out
    assert "validation   1 text, " in printed
    assert "1 of 1 validation text also in the training data" in printed


def test_pairs_and_labels_have_names(inspected, capsys, tmp_path):
    rows = [f"s{i} a\tt{i}" for i in range(9)]
    (tmp_path / "rows.tsv").write_text("\n".join(rows), encoding="utf-8")
    flags = ["--data.paths", tmp_path / "rows.tsv", "--training.batch-tokens", 64]
    printed = output(capsys, "inspect", "reverse", *flags, "--training.devices", 1).out
    assert "  source: s" in printed and "  target: t" in printed
    assert " validation target also in the training data" in printed
    flags = ["--training.devices", 1, "--rows", 1]
    printed = output(capsys, "inspect", "phrasebook_topics", *flags).out
    assert "  label: " in printed and "  text: " in printed and "row 1" not in printed


def test_mistakes_of_inspect_are_one_line(inspected, capsys):
    for flag in ("--step", "--rows"):
        printed = one_line(capsys, "inspect", inspected, flag, "-1")
        assert f"{flag} must be zero or more, got -1" in printed
