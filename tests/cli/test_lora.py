"""Training with LoRA by flags, and using its run."""

import contextlib
import io
import re
import shutil

import pytest

from jaxformer.cli import main
from tests.cli.commands import one_line, write_config


@pytest.fixture(scope="module")
def adapted(trained, tmp_path_factory):
    """A folder with a run of matrices and its base, and what training printed."""
    folder, out = tmp_path_factory.mktemp("lora"), io.StringIO()
    shutil.copytree(trained[0] / "run", folder / "base")
    with contextlib.redirect_stdout(out):
        main(
            ["train", str(write_config(folder)), "--init-from", str(folder / "base"), "--lora.rank",
             "2", "--lora.targets", "*query_kernel", "*up_kernel", "--training.steps", "10",
             "--optimizer.learning-rate", "1e-2"]
        )  # fmt: skip
    return folder, out.getvalue()


@pytest.mark.thorough
def test_training_says_what_lora_saves_and_shows_samples_of_the_merged_model(adapted):
    folder, out = adapted
    assert re.search(r"^LoRA: [\d,]+ of [\d,]+ parameters are trained$", out, re.MULTILINE)
    assert 'lora = { rank = 2, alpha = 16.0, targets = ["*query_kernel", "*up_kernel"] }' in out
    assert (folder / "run/samples.txt").read_text(encoding="utf-8").count("--- ") == 3


@pytest.mark.thorough
def test_base_that_has_moved_is_given_by_a_flag(adapted, trained, capsys):
    folder, out = adapted
    loss = out.split("step 10: validation loss ")[-1].split(" nats")[0]
    (folder / "base").rename(folder / "moved")
    words = ("evaluate", folder / "run")
    assert "pass its new location: --base FOLDER" in one_line(capsys, *words)
    main([*map(str, words), "--base", str(folder / "moved")])
    assert f"validation loss at step 10: {loss} nats" in capsys.readouterr().out
    resuming = ["train", str(folder / "run/config.toml"), "--training.steps", "11"]
    main([*resuming, "--base", str(folder / "moved")])
    assert "resuming at step 10 of 11" in capsys.readouterr().out
    main(["convert", str(folder / "run"), str(folder / "to"), "--base", str(folder / "moved")])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--lora.ranks", "2"], "did you mean --lora.rank"),
        (["--lora.targets", "*_kernels", "--init-from", "{base}"], "which matches no kernel"),
    ],
)
def test_mistakes_are_one_line(trained, tmp_path, capsys, flags, message):
    flags = [flag.format(base=trained[0] / "run") for flag in flags]
    assert message in one_line(capsys, "train", write_config(tmp_path), *flags)
