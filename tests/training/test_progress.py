import io

from rich.console import Console

from jaxformer.training.progress import TrainingProgress


def test_without_a_terminal_every_update_is_a_line():
    out = io.StringIO()
    with TrainingProgress(10, 40, Console(file=out)) as progress:
        progress.update(20, loss=2.5, per_second=12345.6)
        progress.print("note [not markup]")
    first, second = out.getvalue().splitlines()
    assert first.startswith("step 20/40  loss 2.500  12,346 tokens/s") and first.endswith("s left")
    assert second == "note [not markup]"


def test_terminal_shows_bar_loss_speed_and_time_left():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    with TrainingProgress(0, 40, console) as progress:
        progress.update(20, loss=2.5, per_second=12345.6)
    shown = out.getvalue()
    for part in ("20/40", "loss 2.500", "12,346 tokens/s", "left"):
        assert part in shown


def test_what_is_counted_has_its_name():
    out = io.StringIO()
    with TrainingProgress(0, 40, Console(file=out), unit="text") as progress:
        progress.update(20, loss=2.5, per_second=7.0)
    assert "  7 texts/s" in out.getvalue()
