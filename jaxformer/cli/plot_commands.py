"""The plot commands and their options, as tyro reads them."""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from jaxformer.cli.opening_flags import Opening, RunFolder, by_default

__all__ = ["Plot", "PlotAttention", "PlotLoss", "PlotPositions", "PlotSweep"]


@dataclasses.dataclass(frozen=True)
class PlotLoss:
    """Draw the training and validation loss of one or more runs, by step.

    A run that is still training is drawn up to its current step. Losses are only comparable
    between runs with the same data and tokenizer. The training loss includes dropout and label
    smoothing, if the run uses them; the validation loss does not.
    """

    runs: Annotated[
        tuple[pathlib.Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="(required)"),
    ]
    """Run folders, such as runs/quickstart."""

    output: pathlib.Path = pathlib.Path("loss.png")
    """File to write: .png, .svg or .pdf."""


@dataclasses.dataclass(frozen=True)
class PlotPositions:
    """Draw the position encodings, rotations or biases of a trained model.

    Sinusoidal and learned positions become a heat map of their table. Rotary positions become heat
    maps of the cosines and sines. ALiBi and relative positions become a curve of the bias for each
    head. If encoder and decoder differ in positions, each gets its own file, with the suffix
    "_encoder" or "_decoder".
    """

    run: RunFolder
    """Run folder, such as runs/quickstart, or Hugging Face folder."""

    output: pathlib.Path = pathlib.Path("positions.png")
    """File to write: .png, .svg or .pdf."""

    length: Annotated[int | None, by_default("the model's max_len, at most 64")] = None
    """Number of positions, or of distances, to draw."""

    opening: Annotated[Opening, tyro.conf.arg(name="")] = Opening()


@dataclasses.dataclass(frozen=True)
class PlotAttention:
    """Write an HTML page of the attention weights for a text, in every layer and head.

    The page is a single file. It opens in any browser and needs no network.
    """

    run: RunFolder
    """Run folder, such as runs/phrasebook_en_kn, or Hugging Face folder."""

    text: str
    """Text to show the attention for; for an encoder-decoder, the source text."""

    target: Annotated[str | None, by_default("the model's best translation")] = None
    """For an encoder-decoder: translation of the text."""

    output: pathlib.Path = pathlib.Path("attention.html")
    """HTML file to write."""

    opening: Annotated[Opening, tyro.conf.arg(name="")] = Opening()


@dataclasses.dataclass(frozen=True)
class PlotSweep:
    """Draw the results of a sweep: mean and standard deviation over seeds, by its first key."""

    folder: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="SWEEP")]
    """Folder of the sweep, such as runs/sweep."""

    output: pathlib.Path = pathlib.Path("sweep.png")
    """File to write: .png, .svg or .pdf."""


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw losses, sweeps, positions or attention into files.

    An existing file is replaced. Pictures need matplotlib (install jaxformer[viz]); the attention
    page does not.
    """

    figure: tyro.conf.OmitSubcommandPrefixes[
        Annotated[PlotLoss, tyro.conf.subcommand("loss")]
        | Annotated[PlotSweep, tyro.conf.subcommand("sweep")]
        | Annotated[PlotPositions, tyro.conf.subcommand("positions")]
        | Annotated[PlotAttention, tyro.conf.subcommand("attention")]
    ]
