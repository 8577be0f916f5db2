"""jaxformer plot: figures of runs, written to files."""

import pathlib
from typing import TYPE_CHECKING

from jaxformer import errors
from jaxformer.cli.commands.figures import loss_figure, write_figure
from jaxformer.cli.commands.sweep import sweep_figure
from jaxformer.cli.inputs import Opening
from jaxformer.cli.terminal import readable_seconds, show, show_named
from jaxformer.storage import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jaxformer.runs import Positions

_DEFAULT_LENGTH = 64  # most positions drawn without --length


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


def plot_positions(
    run: pathlib.Path,
    *,
    output: pathlib.Path = pathlib.Path("positions.png"),
    length: int | None = None,
    opening: Opening,
) -> None:
    """Draw the position encodings, rotations or biases of a trained model.

    Sinusoidal and learned positions become a heat map of their table. Rotary positions become heat
    maps of the cosines and sines. ALiBi and relative positions become a curve of the bias for each
    head. If encoder and decoder differ in positions, each gets its own file, whose name ends
    in "_encoder" or "_decoder".

    Args:
        run: run folder, such as runs/quickstart, or Hugging Face folder.
        output: file to write: .png, .svg or .pdf.
        length: number of positions, or of distances, to draw; the model's max_len, at most 64, if
            not set.
    """
    from jaxformer import runs

    model = opening.open(run)
    length = min(model.config.model.max_len, _DEFAULT_LENGTH) if length is None else length
    schemes = runs.model_positions(model.config.model, model.params, length)
    for part, positions in schemes.items():
        path, title = output, f"{positions.kind} positions of {run.resolve().name}"
        if len(schemes) > 1:
            path, title = output.with_stem(f"{output.stem}_{part}"), f"{title}, {part}"
        trained = model.config.model.max_len
        write_figure(_draw(positions, f"{title}\n({length} shown, {trained} trained)"), path)


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


def _draw(positions: "Positions", title: str) -> "Figure":
    from jaxformer import viz

    if positions.kind == "rotary":
        cosine, sine = positions.values
        tables = {"cosine of the angle": cosine, "sine of the angle": sine}
        return viz.position_heatmaps(tables, x_label="feature pair", title=title)
    if positions.distances is not None:
        return viz.position_bias_curves(positions.values, positions.distances, title=title)
    return viz.position_heatmaps({"": positions.values}, title=title)
