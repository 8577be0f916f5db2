import types

from jaxformer.training.records import progress as progress_module
from jaxformer.training.records.progress import TrainingProgress


def test_every_update_is_a_line(monkeypatch, capsys):
    """The time left follows from the steps of this process; a resumed run starts after step 0."""
    times = iter([100.0, 103.0, 140.0])
    monkeypatch.setattr(progress_module, "time", types.SimpleNamespace(monotonic=times.__next__))
    progress = TrainingProgress(10, 40, unit="masked token")
    progress.update(11, {"": 2.5}, per_second=12345.6)
    progress.update(20, {"": 2.5}, per_second=12345.6)
    progress.print("note [not markup]", "seed=1")
    assert capsys.readouterr().out.splitlines() == [
        "step 11/40  loss 2.500  12,346 masked tokens/s  87 s left",
        "step 20/40  loss 2.500  12,346 masked tokens/s  80 s left",
        "seed=1: note [not markup]",
    ]
