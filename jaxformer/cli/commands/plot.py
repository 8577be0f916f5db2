"""jaxformer plot: figures of runs, written to files."""

import pathlib

from jaxformer import errors
from jaxformer.cli.commands.figures import loss_figure, write_figure
from jaxformer.cli.commands.sweep import sweep_figure
from jaxformer.cli.inputs import Opening
from jaxformer.cli.terminal import readable_seconds, show, show_named
from jaxformer.storage import write_whole


def plot_loss(
    runs: tuple[pathlib.Path, ...], *, output: pathlib.Path = pathlib.Path("loss.png")
) -> None:
    """Draw the training and validation loss of one or more runs, by step.

    A run that is still training is drawn up to its current step. Losses are only comparable
    between runs with the same data and tokenizer. The training loss includes dropout and label
    smoothing, if the run uses them; the validation loss does not.

    Args:
        runs: run folders, such as runs/quickstart.
        output: file to write: .png, .svg or .pdf.
    """
    write_figure(loss_figure(runs), output)


def plot_attention(
    run: pathlib.Path,
    text: str,
    *,
    target: str | None = None,
    output: pathlib.Path = pathlib.Path("attention.html"),
    opening: Opening,
) -> None:
    """Write an HTML page of the attention weights for a text, in every layer and head.

    The page is a single file. It opens in any browser and needs no network.

    Args:
        run: run folder, such as runs/quickstart, or Hugging Face folder.
        text: text to show the attention for; for an encoder-decoder, the source text.
        target: for an encoder-decoder: translation of the text; the model's best one if not set.
        output: HTML file to write.
    """
    from jaxformer import viz
    from jaxformer.runs import Translator

    model = opening.open(run)
    if isinstance(model, Translator):
        maps = model.attention(text, target=target)
    elif target is None:
        maps = model.attention(text)
    else:
        raise errors.ConfigError(
            f"the target is the translation of the text, and {run} holds {model.kind}; leave it out"
        )
    page = viz.attention_page(maps, title=f"Attention of {run.resolve().name}")
    write_whole(output, page)
    show(str(output))


def plot_sweep(folder: pathlib.Path, *, output: pathlib.Path = pathlib.Path("sweep.png")) -> None:
    """Draw the results of a sweep: mean and standard deviation over seeds, by its first key.

    Args:
        folder: folder of the sweep, such as runs/sweep.
        output: file to write: .png, .svg or .pdf.
    """
    write_figure(sweep_figure(folder), output)


def plot_profile(run: pathlib.Path, *, output: pathlib.Path = pathlib.Path("profile.png")) -> None:
    """Draw and print the time of training steps, by part of the model.

    The run needs a trace of some steps: jaxformer train CONFIG --profile 20:25

    Args:
        run: run folder, such as runs/quickstart.
        output: file to write: .png, .svg or .pdf.
    """
    from jaxformer import viz
    from jaxformer.training import read_profile

    profile = read_profile(run)
    groups = {"device": profile.device_seconds, "host": profile.host_seconds}
    for name, seconds in groups.items():
        parts = ", ".join(f"{part} {readable_seconds(time)}" for part, time in seconds.items())
        show_named(name, f"{parts or 'nothing'} per step")
    title = (
        f"{run.resolve().name}: time per training step\n"
        f"(summed over operations; steps traced: {profile.steps})"
    )
    write_figure(viz.time_bars(groups, title=title), output)
