import io
import re
import types

from rich.console import Console

from jaxformer.training.records import progress as progress_module
from jaxformer.training.records.progress import TrainingProgress


def test_without_a_terminal_every_update_is_a_line(monkeypatch):
    """The time left follows from the steps of this process; a resumed run starts after step 0."""
    times = iter([100.0, 103.0, 140.0])
    monkeypatch.setattr(progress_module, "time", types.SimpleNamespace(monotonic=times.__next__))
    out = io.StringIO()
    with TrainingProgress(10, 40, Console(file=out)) as progress:
        progress.update(11, [2.5], per_second=12345.6)
        progress.update(20, [2.5, 2.0, 3.0], per_second=12345.6)
        progress.print("note [not markup]")
    assert out.getvalue().splitlines() == [
        "step 11/40  loss 2.500  12,346 tokens/s  87 s left",
        "step 20/40  loss 2.000 to 3.000 in 3 runs  12,346 tokens/s  80 s left",
        "note [not markup]",
    ]


def test_bar_fits_a_terminal_of_80_columns_and_names_its_unit_and_both_times():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    with TrainingProgress(0, 20_000, console, unit="masked token") as progress:
        progress.update(2000, [2.5], per_second=12345.6)
    shown = next(line for line in out.getvalue().splitlines() if "2000/20000" in line)
    status = r"2000/20000 loss 2.500  12,346 masked tokens/s \d:\d\d:\d\d [\d-]:..:.."
    assert re.search(status, shown)
    assert len(shown.rpartition("\x1b[2K")[2].rstrip()) <= 80
