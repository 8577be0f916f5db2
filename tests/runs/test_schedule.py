"""The end of the decay in a run: that of training, unless the config or the run says otherwise."""

import pytest

from jaxformer.config import ScheduleConfig, load_config
from jaxformer.errors import CheckpointError
from jaxformer.training.checkpoints import Checkpoints
from tests.runs import tiny


@pytest.fixture
def start(tmp_path):
    """Makes or resumes a run up to its first step; returns its decay_steps and what it reports."""

    def train(steps, **schedule):
        config = tiny.config_of_text(
            tmp_path,
            {"paths": (tiny.write(tmp_path / "text.txt", ["the cat sat on the mat"] * 9),)},
            tokenizer={"kind": "byte"},
            training={"steps": steps},
            schedule=ScheduleConfig(**{"name": "cosine"} | schedule),
        )
        said = tiny.logged_before_the_first_step(config)
        reports = [line for line in said if "learning rate" in line]
        return load_config(tmp_path / "run" / "config.toml").schedule.decay_steps, reports

    return train


def test_decay_ends_with_training_and_stays_there_when_a_run_goes_on(start):
    assert start(300) == (300, [])
    end, (line,) = start(500)
    assert end == 300
    assert line == (
        "warning: the decay of the learning rate ends at step 300, training at step 500, with 10% "
        "of the peak"
    )
    assert start(500, decay_steps=300)[0] == 300


@pytest.mark.parametrize(
    ("schedule", "end", "said"),
    [
        ({"decay_steps": 500}, 500, "with 41% of the peak"),
        ({"warmup_steps": 600}, 601, "with 50% of the peak"),
        ({"name": "warmup_stable_decay", "decay_start": 150}, 300, None),
        ({"name": "noam", "warmup_steps": 4}, None, None),
    ],
)
def test_decay_that_ends_elsewhere_is_logged_before_the_first_step(start, schedule, end, said):
    decay_steps, reports = start(300, **schedule)
    assert decay_steps == end
    assert [said in line for line in reports] == ([True] if said else [])


def test_decay_that_has_not_begun_can_be_moved_when_a_run_is_resumed(start, monkeypatch):
    assert start(300, name="warmup_stable_decay", decay_start=200)[0] == 300
    assert start(500, name="warmup_stable_decay", decay_start=450) == (500, [])
    monkeypatch.setattr(Checkpoints, "step_to_resume", lambda self, steps: 440)
    assert start(900, name="warmup_stable_decay", decay_start=450)[0] == 500  # as it began
    assert start(700, name="warmup_stable_decay", decay_start=600, decay_steps=650)[0] == 650
    for other in ({"decay_start": 430}, {"decay_start": 600, "final_scale": 0.2}):
        with pytest.raises(CheckpointError, match=f"schedule.{next(reversed(other))}: "):
            start(700, **{"name": "warmup_stable_decay", "decay_steps": 650} | other)
