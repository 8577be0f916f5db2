"""The plot commands and their options, as tyro reads them."""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from jaxformer.cli.opening_flags import Opening, RunFolder

__all__ = ["Plot", "PlotAttention", "PlotLoss", "PlotPositions"]


@dataclasses.dataclass(frozen=True)
class PlotLoss:
    """Draw training and validation loss over the steps, of one run or of several together.

    A run that is still being trained is drawn as far as it is. Losses compare between runs of the
    same data and tokenizer only. The training loss has dropout and label smoothing in it, where
    the run has them; the validation loss never has.
    """

    runs: Annotated[
        tuple[pathlib.Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")
    ]
    """Run folders, such as runs/quickstart."""

    output: pathlib.Path = pathlib.Path("loss.png")
    """File to write, .png, .svg or .pdf."""


@dataclasses.dataclass(frozen=True)
class PlotPositions:
    """Draw the position encodings, rotations or biases of a trained model.

    Sinusoidal and learned positions are drawn as a heat map of their table, rotary ones as heat
    maps of the cosines and sines, alibi and relative ones as a curve of the bias for each head.
    Where encoder and decoder have different positions, each has a file, whose name ends in
    _encoder or _decoder.
    """

    run: RunFolder
    """Run folder, such as runs/quickstart; or a folder of Hugging Face."""

    output: pathlib.Path = pathlib.Path("positions.png")
    """File to write, .png, .svg or .pdf."""

    length: int | None = None
    """How many positions, or distances, to draw; the model's max_len, at most 64, when not
    given."""

    opening: Annotated[Opening, tyro.conf.arg(name="")] = Opening()


@dataclasses.dataclass(frozen=True)
class PlotAttention:
    """Write a page of the attention weights of a text, in every layer and head.

    The page is one HTML file, which any browser opens and which needs no network.
    """

    run: RunFolder
    """Run folder, such as runs/phrasebook_en_kn; or a folder of Hugging Face."""

    text: str
    """Text whose attention is shown; of an encoder-decoder, the source."""

    target: str | None = None
    """Translation of the text, for an encoder-decoder; the model's best one when not given."""

    output: pathlib.Path = pathlib.Path("attention.html")
    """File to write, .html."""

    opening: Annotated[Opening, tyro.conf.arg(name="")] = Opening()


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw losses, positions or attention of runs into files.

    Existing files are replaced. Pictures need matplotlib, which comes with jaxformer[viz]; the page
    of attention does not.
    """

    figure: tyro.conf.OmitSubcommandPrefixes[
        Annotated[PlotLoss, tyro.conf.subcommand("loss")]
        | Annotated[PlotPositions, tyro.conf.subcommand("positions")]
        | Annotated[PlotAttention, tyro.conf.subcommand("attention")]
    ]
