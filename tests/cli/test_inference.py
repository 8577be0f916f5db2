"""jaxformer translate and predict, and evaluate of their runs, on the smallest trained runs."""

import gzip
import io
import re
import shutil
import sys
import types

import pytest

from jaxformer import runs
from jaxformer.cli.commands import train
from tests.cli.commands import one_line, output
from tests.runs import tiny


@pytest.fixture(scope="module")
def translator(translation_run):
    return translation_run[0]


@pytest.fixture(scope="module")
def classifier(classification_run):
    return classification_run[0]


@pytest.fixture(scope="module")
def masked(masked_run):
    return masked_run[0]


def type_in(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="latin-1"))


# Four can be translated, which is one batch everywhere.
LINES = ["one two", "", "six five one", "two " * 12, "  three ", "four four"]
GOOD = [0, 2, 4, 5]


def translations_of(run, **options):
    """What becomes of the lines; None of bad ones."""
    translations = iter(runs.open_run(run).translate([LINES[i] for i in GOOD], **options))
    return [next(translations) if i in GOOD else None for i in range(len(LINES))]


def test_training_shows_the_samples(translation_run, masked_run):
    run, out = translation_run
    samples = (run / "samples.txt").read_text(encoding="utf-8")
    for source in runs.open_run(run).config.samples.prompts:
        assert f"--- {source!r}\n{source}\n" in out
        assert f"--- {source!r}\n{source}\n" in samples
    run, out = masked_run
    samples = (run / "samples.txt").read_text(encoding="utf-8")
    assert samples.count("---") == 3 and samples.count("%") == 9
    assert samples.splitlines()[1] in out


@pytest.mark.essential
def test_evaluate_prints_loss_scores_and_how_they_were_computed(translation_run, tmp_path, capsys):
    run, out = translation_run
    printed = output(capsys, "evaluate", run).out
    pattern = (
        r"validation loss at (step \d+): [\d.]+ nats per token, [\d.]+ bits per byte, "
        r"perplexity [\d.]+, bleu [\d.e-]+, chrf [\d.]+, exact [\d.]+, over \d+ tokens\n"
        r"BLEU: nrefs:1\|\S+tok:13a\S+\nchrF: nrefs:1\|\S+\n"
    )
    match = re.fullmatch(pattern, printed)
    assert match, printed
    scores = re.search("bleu.*exact [^,]*", printed)[0]
    details = printed.partition("\n")[2]
    best = int(match[1].removeprefix("step "))  # which one depends on the machine's arithmetic
    # Where the last step is the best, its loss is printed already.
    as_last = f"translations at step {best}: {scores}\n{details}"
    assert (as_last if best == 100 else f"step {best} of 100\n{printed}") in out
    for last, expected in (
        (best, as_last),
        (best + 1, f"the best checkpoint is from step {best} of {best + 1}\n{printed}"),
    ):
        result = types.SimpleNamespace(evaluation=True, step=last)
        train._report(shutil.copytree(run, tmp_path / f"{last}"), result, None)
        assert expected in capsys.readouterr().out


@pytest.mark.essential
def test_translate_sentences_with_the_options_of_its_flags(translator, capsys):
    sentences = ["one two", "six", "two three five"]
    for words, options in (((), {}), (("--beam-size", 1), {"beam_size": 1})):
        printed = output(capsys, "translate", translator, *sentences, *words)
        best = runs.open_run(translator).translate(sentences, **options)
        assert printed.out == "".join(f"{hypotheses[0].text}\n" for hypotheses in best)
        assert printed.err == ""


@pytest.mark.parametrize("way", ["lines.txt", "lines.gz", "stdin"])
def test_every_line_has_its_translation_in_its_place(
    translator, tmp_path, capsys, monkeypatch, way
):
    r"""Bad lines give empty ones and are named; only \n and \r\n end a line."""
    content = "\ufeff" + "\r\n".join(LINES).replace("six five one", "six five\u2028one") + "\n"
    content = content.encode()
    words = ["translate", translator]
    if way == "stdin":
        type_in(monkeypatch, content)
    else:
        content = gzip.compress(content) if way.endswith(".gz") else content
        (tmp_path / way).write_bytes(content)
        words += ["--file", tmp_path / way]
    printed = output(capsys, *words)
    assert printed.out.split("\n") == [
        *("" if best is None else best[0].text for best in translations_of(translator)), "",
    ]  # fmt: skip
    first, second = printed.err.splitlines()
    assert first.startswith("jaxformer: line 2 was not translated: a text must have 1 to ")
    assert first.endswith("got 0 for ''; write some text")
    assert second.startswith("jaxformer: line 4 was not translated: ") and "got 13" in second


def test_best_translations_are_lines_of_score_and_text(translator, tmp_path, capsys):
    """An empty line ends those of a sentence; a bad line is one alone."""
    path = tiny.write(tmp_path / "lines.txt", LINES)
    words = ("--file", path, "--num-best", 3, "--length-penalty", 0)
    out = output(capsys, "translate", translator, *words).out
    expected = ""
    for best in translations_of(translator, num_best=3, length_penalty=0.0):
        expected += "".join(f"{item.score:.4f}\t{item.text}\n" for item in best or ()) + "\n"
    assert out == expected and out.count("\t") == 12


def test_line_breaks_that_a_model_writes_do_not_break_the_lines(
    translator, masked, capsys, monkeypatch
):
    def decoded(self, ids):
        return "a\nb\r" if len(ids) else ""

    monkeypatch.setattr("jaxformer.text.Tokenizer.decode", decoded)
    assert output(capsys, "translate", translator, "one two").out == "a\\nb\\r\n"
    words = ("--num-best", 1)
    assert output(capsys, "predict", masked, "[MASK]", *words).out.count("\n") == 2


MISTAKES = {
    ("one two", "--num-best", 4): "must be at most beam_size, got num_best=4 and beam_size=3",
    ("one two", "--num-best", 0): "--num-best must be positive, got 0",
    ("one two", "--beam-size", 2, "--num-best", 3): "got num_best=3 and beam_size=2",
    ("one two", "--file", "a.txt"): "give texts or --file, not both",
    ("--file", "absent.txt"): "absent.txt",
    ("one", ""): "got 0 for ''; write some text",
    ("one " * 12,): "1 to max_len=12 tokens, got 13",
    ("one two", "--step", 7): "no checkpoint of step 7",
}  # fmt: skip


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_of_translate_get_one_line(translator, capsys, words):
    assert MISTAKES[words] in one_line(capsys, "translate", translator, *words)


def test_no_lines_give_no_lines(translator, classifier, capsys, monkeypatch):
    for run, command in ((translator, "translate"), (classifier, "predict")):
        type_in(monkeypatch, b"")
        assert output(capsys, command, run) == ("", "")


def test_standard_input_must_be_utf8(translator, capsys, monkeypatch):
    type_in(monkeypatch, b"caf\xe9\n")
    error = one_line(capsys, "translate", translator, status=1)
    assert "UnicodeDecodeError: 'utf-8' codec can't decode" in error


def test_run_of_another_kind_is_refused_with_what_it_is(translator, classifier, masked, capsys):
    kinds = {
        "an encoder-decoder": (translator, "to translate: jaxformer translate {} TEXT"),
        "a classifier": (classifier, "to label texts: jaxformer predict {} TEXT"),
        "a masked language model": (masked, "to fill in [MASK]: jaxformer predict {} TEXT"),
    }
    for command, takes in {
        "generate": ["a language model"],
        "translate": ["an encoder-decoder"],
        "predict": ["a masked language model", "a classifier"],
    }.items():
        for kind in kinds.keys() - takes:
            run, use = kinds[kind]
            error = one_line(capsys, command, run, "one")
            needs = f"but this needs {' or '.join(takes)}"
            assert f"{run} is {kind}, {needs}; {use.format(run)}\n" in error


def test_predict_labels_every_line(classifier, tmp_path, capsys):
    path = tiny.write(tmp_path / "lines.txt", ["cat cat no 1", " ", "moon no 2"])
    printed = output(capsys, "predict", classifier, "--file", path, "--num-best", 2)
    run = runs.open_run(classifier)
    first, second = (
        "".join(f"{c.probability:.4f}\t{c.name}\n" for c in best)
        for best in run.classify(["cat cat no 1", "moon no 2"], 2)
    )
    assert printed.out == f"{first}\n\n{second}\n"
    assert "line 2 was not predicted for: a text must have" in printed.err


@pytest.mark.essential
def test_predict_fills_every_mask(masked, capsys, monkeypatch):
    type_in(monkeypatch, b"[MASK] cat [MASK]\nthe cat\n")
    printed = output(capsys, "predict", masked)
    fills = runs.open_run(masked).fill_masks(["[MASK] cat [MASK]"], 3)[0]
    assert (
        printed.out
        == "".join(
            f"{i + 1}\t{fill.probability:.4f}\t{fill.text}\n" for i in range(2) for fill in fills[i]
        )
        + "\n\n"
    )
    assert "line 2 was not predicted for: a text must have [MASK]" in printed.err
    assert "must have [MASK]" in one_line(capsys, "predict", masked, "[MASK]", "one two")
