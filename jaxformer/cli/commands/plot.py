"""jaxformer plot: figures of runs, written to files."""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxformer import errors
from jaxformer.cli.commands.figures import write_figure
from jaxformer.cli.commands.sweep import sweep_figure
from jaxformer.cli.inputs import Opening
from jaxformer.cli.terminal import readable_seconds, show, show_named
from jaxformer.config import config_differences
from jaxformer.storage import as_path, in_bucket, real_path, write_whole

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
    _check_picture(output)
    from jaxformer import viz
    from jaxformer.runs import read_run_config, task_class
    from jaxformer.training import read_metrics

    names = _distinct_names(runs)
    configs = [read_run_config(folder) for folder in runs]
    labels = [task_class(config).text_model.loss_labels(config) for config in configs]
    unit = labels[0].unit
    for folder, label in zip(runs, labels, strict=True):
        if label.unit != unit:
            raise errors.ConfigError(
                f"losses in one figure must have the same unit, got nats per {unit} for "
                f"{runs[0]} and nats per {label.unit} for {folder}; plot them separately"
            )
    records = {name: read_metrics(folder) for name, folder in zip(names, runs, strict=True)}
    alike = len(set(labels)) == 1
    title = f"Loss of {names[0]}" if len(names) == 1 else "Losses of several runs"
    changed = {key for config in configs for key in config_differences(configs[0], config)}
    if any(key.startswith(("data.", "tokenizer.")) for key in changed - {"data.cache"}):
        title += "\nnot comparable: data or tokenizers differ"
    figure = viz.loss_curves(
        records, unit=unit, training_label=labels[0].training if alike else "training", title=title
    )
    _write(figure, output)


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
        opening: how to open the run.
    """
    _check_picture(output)
    from jaxformer import runs

    model = opening.open(run)
    length = min(model.config.model.max_len, _DEFAULT_LENGTH) if length is None else length
    schemes = runs.model_positions(model.config.model, model.params, length)
    name, trained = run.resolve().name, model.config.model.max_len
    shown = f"all {trained}" if length == trained else f"the first {length} of {trained}"
    if length > trained:
        shown = f"{length}, of which {trained} were trained"
    for part, positions in schemes.items():
        path, title = output, f"{positions.kind} positions of {name}"
        if len(schemes) > 1:
            path, title = output.with_stem(f"{output.stem}_{part}"), f"{title}, {part}"
        _write(_draw(positions, f"{title}\n({shown})"), path)


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
        opening: how to open the run.
    """
    _check_output(output, (".html",))
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
    write_whole(as_path(real_path(output)), page)
    show(str(output))


def plot_sweep(folder: pathlib.Path, *, output: pathlib.Path = pathlib.Path("sweep.png")) -> None:
    """Draw the results of a sweep: mean and standard deviation over seeds, by its first key.

    Args:
        folder: folder of the sweep, such as runs/sweep.
        output: file to write: .png, .svg or .pdf.
    """
    _check_picture(output)
    _write(sweep_figure(folder), output)


def plot_profile(run: pathlib.Path, *, output: pathlib.Path = pathlib.Path("profile.png")) -> None:
    """Draw and print the time of training steps, by part of the model.

    The run needs a trace of some steps: jaxformer train CONFIG --profile 20:25

    Args:
        run: run folder, such as runs/quickstart.
        output: file to write: .png, .svg or .pdf.
    """
    _check_picture(output)
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
    _write(viz.time_bars(groups, title=title), output)


def _check_picture(output: pathlib.Path) -> None:
    """Refuses a picture that cannot be drawn or written, before anything is computed."""
    _check_output(output, (".png", ".svg", ".pdf"))
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise errors.ConfigError(
            'plot needs matplotlib, which is not installed; pip install "jaxformer[viz]"'
        ) from None


def _check_output(output: pathlib.Path, suffixes: Sequence[str]) -> None:
    """Refuses an output that cannot be written, before anything is computed."""
    if output.suffix.lower() not in suffixes:
        raise errors.ConfigError(f"--output must end in {', '.join(suffixes)}, got {output}")
    if not in_bucket(output) and not output.parent.is_dir():
        raise errors.ConfigError(f"--output {output} is in a folder that does not exist; create it")


def _write(figure: "Figure", output: pathlib.Path) -> None:
    write_figure(figure, as_path(real_path(output)))  # so that a user's link to it is kept
    show(str(output))


def _distinct_names(folders: Sequence[pathlib.Path]) -> list[str]:
    """Names of folders, or their paths where two have the same name."""
    paths = [str(real_path(folder)) for folder in folders]
    for folder, path in zip(folders, paths, strict=True):
        if paths.count(path) > 1:
            raise errors.ConfigError(f"runs must be different, got {folder} twice")
    names = [as_path(path).name for path in paths]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def _draw(positions: "Positions", title: str) -> "Figure":
    import numpy as np

    from jaxformer import runs, viz

    if isinstance(positions, runs.PositionRotations):
        return viz.rotary_heatmaps(positions.cos, positions.sin, title=title)
    if isinstance(positions, runs.PositionBiases):
        return viz.position_bias_curves(positions.bias, positions.distances, title=title)
    figure = viz.position_heatmap(positions.table, title=title)
    largest = float(np.abs(positions.table).max())
    if positions.kind == "learned" and largest:  # can be much smaller than 1, the default limit
        figure.axes[0].images[0].set_clim(-largest, largest)
    return figure
