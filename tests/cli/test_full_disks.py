"""A disk that fills at each of seven places of a training: nothing is lost, and it goes on."""

import jax
import numpy as np
import pytest

from jaxformer.cli import main
from jaxformer.cli.commands import train
from jaxformer.runs import open_run
from jaxformer.runs.folder import files as run_folder
from jaxformer.text.store import store
from jaxformer.training import Checkpoints, read_metrics
from jaxformer.training.records.metrics import MetricsWriter
from tests.cli.commands import write_config
from tests.cli.test_surroundings import shell
from tests.training.test_paths_and_disks import disk, fill

SIZE = 2**24  # bytes of a disk

# The function before which a disk fills, the call of it that does, the disk, the exit status, and
# what is said.
PLACES = {
    "folder": (run_folder, "start_folder", 1, "runs", 1, "No space left on device"),
    "token cache": (store, "append", 1, "cache", 1, "No space left on device"),
    "first save": (Checkpoints, "save", 1, "runs", 1, "No space left on device"),
    "second save": (Checkpoints, "save", 2, "runs", 1, "No space left on device"),
    "log": (MetricsWriter, "write", 4, "runs", 1, "No space left on device"),
    "figure": (train, "loss_figure", 1, "runs", 1, "loss curve: not drawn: "),
    "samples": (train, "write_whole", 1, "runs", 1, "No space left on device"),
}


def result(run):
    """Parameters at the end, and every loss that was recorded."""
    params = jax.device_get(open_run(run, step=20).params)
    names = ("step", "loss", "validation_loss", "grad_norm")
    return params, [[record.get(name) for name in names] for record in read_metrics(run)]


def assert_same(actual, other):
    jax.tree.map(np.testing.assert_array_equal, actual[0], other[0])
    assert actual[1] == other[1]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    main(["train", str(write_config(folder))])
    return result(folder / "run")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Orbax's threads
@pytest.mark.parametrize("place", PLACES)
def test_run_whose_disk_fills_goes_on_bitwise(place, uninterrupted, tmp_path, capsys, monkeypatch):
    owner, name, call, full, status, message = PLACES[place]
    function, calls = getattr(owner, name), []
    with disk(tmp_path / "runs", SIZE) as runs, disk(tmp_path / "cache", SIZE) as cache:
        config, out = write_config(tmp_path), runs / "run"
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        words = ["train", str(config), "--out", str(out)]

        def filled(*args, **options):
            calls.append(1)
            if len(calls) == call:
                fill({"runs": runs, "cache": cache}[full], leave=0)
            return function(*args, **options)

        with monkeypatch.context() as patched:
            patched.setattr(owner, name, filled)
            code = 0
            try:
                main(words)
            except SystemExit as stopped:
                code = stopped.code
        printed = capsys.readouterr()
        assert len(calls) >= call and code == status, printed.err
        assert message in printed.out + printed.err
        assert printed.err.count("\n") <= 2 and "Traceback" not in printed.err
        for folder in (runs, cache):
            (folder / "filler").unlink(missing_ok=True)
        main(words)
        assert_same(result(out), uninterrupted)
        assert (out / "samples.txt").exists() and (out / "loss.png").exists()


@pytest.mark.slow
def test_run_whose_output_is_full_goes_on_bitwise(uninterrupted, tmp_path):
    config = write_config(tmp_path, cpu=("devices = 2", "cpu_devices = 2"))
    done = shell(f"jaxformer train {config} > /dev/full", tmp_path)
    assert done.returncode != 0 and "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert shell(f"jaxformer train {config}", tmp_path).returncode == 0
    assert_same(result(tmp_path / "run"), uninterrupted)
