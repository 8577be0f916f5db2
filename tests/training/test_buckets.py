"""Trainings whose folder is in a bucket."""

import functools
import itertools
import pathlib
import re

import numpy as np
import pytest

from jaxformer.errors import CheckpointWarning, ConfigError
from jaxformer.storage import files_below
from jaxformer.training import Checkpoints, read_metrics, read_profile
from jaxformer.training.checkpoints import checkpoint_damage, checkpoint_steps
from tests.records import without_meters
from tests.training import saved, test_fit

train = functools.partial(test_fit.train, validation=lambda: [test_fit.batch(99)])


def kernel(result):
    return np.asarray(result.params["kernel"])


@pytest.mark.essential
def test_a_training_in_a_bucket_is_the_one_on_a_disk_and_resumes(bucket, tmp_path, capsys):
    on_disk = train(tmp_path / "run")
    train(str(bucket / "run"), steps=3, profile=range(2, 4))
    assert checkpoint_steps(bucket / "run" / "checkpoints") == [3]
    resumed = train(bucket / "run")
    assert "resuming at step 3 of 6" in capsys.readouterr().out
    np.testing.assert_array_equal(kernel(resumed), kernel(on_disk))
    bucket_records, disk_records = (read_metrics(folder / "run") for folder in (bucket, tmp_path))
    assert without_meters(bucket_records)[-2:] == without_meters(disk_records)[-2:]
    assert read_profile(bucket / "run").steps == 2
    names = {re.sub(r"(checkpoints|profile)/.*", r"\1", name)
             for name in files_below(bucket / "run")}  # fmt: skip
    assert names == {"checkpoints", "metrics.jsonl", "profile"}


def test_checkpoints_are_kept_removed_and_chosen_as_on_a_disk(bucket):
    saved.save(bucket / "c", 1, 2, 3, 4, losses=(2.0, 1.0, 3.0, 4.0), keep=2)
    assert checkpoint_steps(bucket / "c") == [2, 3, 4]
    assert {path.partition("/")[0] for path in files_below(bucket / "c")} == {"2", "3", "4"}
    with Checkpoints(bucket / "c", read_only=True) as checkpoints:
        assert (checkpoints.latest_step, checkpoints.best_step) == (4, 2)
        saved.assert_same(checkpoints.restore(saved.state(0)), saved.state(4))
        saved.assert_same(
            checkpoints.restore_params(saved.state(0).params, 2), saved.state(2).params
        )


def test_a_save_that_is_cut_off_before_any_write_leaves_the_step_before_it(bucket, emulator):
    """As by a kill: the bucket stays as it is at that moment, and the run goes on from there."""
    saved.save(bucket / "c", 1)
    moments = []

    def remember(method, _):
        if method != "GET":
            with emulator.lock:
                moments.append(emulator.contents(bucket.name))

    emulator.fault = remember
    saved.save(bucket / "c", 2)
    emulator.fault = lambda *_: None
    assert len(moments) > 20
    for moment in {0, len(moments) // 2, *range(len(moments) - 5, len(moments))}:
        folder = bucket / f"after-{moment}"
        for name, content in moments[moment].items():
            (folder / name).write_bytes(content)
        with Checkpoints(folder / "c", read_only=True) as checkpoints:
            assert checkpoints.latest_step == 1
            saved.assert_same(checkpoints.restore(saved.state(0)), saved.state(1))
    saved.save(folder / "c", 3)
    assert {path.partition("/")[0] for path in files_below(folder / "c")} == {"1", "3"}


def test_damaged_checkpoint_is_passed_over_until_its_step_is_saved_again(bucket):
    saved.save(bucket / "c", 1, 2)
    saved.flip(saved.data_file(bucket / "c" / "2"))
    with pytest.warns(CheckpointWarning, match=f"{bucket}/c/2 is damaged .* using step 1 instead"):
        with Checkpoints(bucket / "c") as checkpoints:
            assert checkpoints.step_to_resume(3) == 1
            checkpoints.save(saved.state(2))
    assert checkpoint_damage(bucket / "c" / "2") is None


def test_records_up_to_a_checkpoint_are_stored_before_it(bucket, emulator):
    """So a training that is killed at any time resumes with all of them."""
    moments = []

    def remember(method, _):
        names = emulator.contents(bucket.name)
        if method != "GET" and "run/checkpoints/3/manifest.json" in names and not moments:
            moments.append(names["run/metrics.jsonl"].count(b"\n"))

    emulator.fault = remember
    train(bucket / "run", steps=3)
    assert moments == [len(read_metrics(bucket / "run"))]


def test_faults_of_the_bucket_are_tried_again_or_said(bucket, emulator, monkeypatch):
    monkeypatch.setattr("gcsfs.retry.asyncio.sleep", lambda _: no_pause())
    count = itertools.count()

    def fault(*_):
        """A fifth of the requests fail: of them, one in three has no answer at all."""
        if (number := next(count)) % 15 == 14:
            raise ConnectionResetError
        return 503 if number % 5 == 4 else None

    emulator.fault = fault
    clean = train(bucket / "run")
    emulator.fault = lambda *_: None
    assert checkpoint_steps(bucket / "run" / "checkpoints") == [3, 6]
    np.testing.assert_array_equal(kernel(clean), kernel(train(None)))
    emulator.fault = lambda method, path: 403 if "checkpoints" in path else None
    with pytest.raises(OSError, match="Forbidden"):  # of gcsfs
        train(bucket / "other")


async def no_pause():
    pass


def test_buckets_and_characters_that_orbax_does_not_take_are_refused(bucket):
    with pytest.raises(ConfigError, match="on a disk or in a bucket gs://, got s3:/b/run; Orbax"):
        Checkpoints(pathlib.PurePath("s3://b/run"))
    saved.save(bucket / "é a_=,+@~b", 1, 2, keep=1)
    assert checkpoint_steps(bucket / "é a_=,+@~b") == [2]
    for name in ("a [1]", "a#b"):
        with pytest.raises(ConfigError, match="which Orbax cannot read"):
            Checkpoints(bucket / name)
