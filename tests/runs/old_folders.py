"""Run folders of an earlier version, one of each kind: python -m tests.runs.old_folders

The archive was made by the version before data, weights and training got rooms of their own. Make
another one, with another name, before what run folders hold is changed.
"""

import contextlib
import json
import pathlib
import re
import tempfile
import zipfile

import tests.conftest  # noqa: F401  (the settings of the tests)
from jaxformer.cli import main
from jaxformer.config import config_to_toml
from tests.runs import pretrained_folders
from tests.seams.cases import DATA, experiment

ARCHIVE = pathlib.Path(__file__).with_suffix(".zip")
LOSSES = "losses.json"  # of the third step, by kind
KINDS = {task: (task, next(iter(sources))) for task, sources in DATA.items()}
KINDS |= {"mixture": ("language model", "mixture"), "adapted": ("language model", "files")}


def train(kind: str, steps: int) -> float:
    """Trains a run of a kind, in the folder "run"; returns the last validation loss."""
    loop = {"steps": steps, "log_every": 1, "eval_every": 1, "checkpoint_every": 2}
    toml, flags = config_to_toml(experiment(*KINDS[kind], training=loop)), []
    if kind == "adapted":
        toml = re.sub(r"(?ms)^\[(model|tokenizer)[.\]].*?(?=^\[|\Z)", "", toml)
        flags = ["--init-from", "model", "--lora.rank", "2"]
    pathlib.Path("old.toml").write_text(toml, encoding="utf-8")
    main(["train", "old.toml", *flags])
    lines = pathlib.Path("run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [one["validation_loss"] for one in map(json.loads, lines) if "validation_loss" in one][
        -1
    ]


def make() -> None:
    """Writes the archive: folders of two steps, and the losses of a third."""
    losses = {}
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        for kind in KINDS:
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                pretrained_folders.gpt2(pathlib.Path("model"))  # the base of what is adapted
                train(kind, 2)
                pathlib.Path("run/loss.png").unlink()
                for path in sorted(pathlib.Path("run").rglob("*")):
                    archive.write(path, pathlib.Path(kind, path.relative_to("run")))
                if kind == "adapted":
                    for path in sorted(pathlib.Path("model").rglob("*")):
                        archive.write(path)
                losses[kind] = train(kind, 3)
        archive.writestr(LOSSES, json.dumps(losses))


if __name__ == "__main__":
    make()
