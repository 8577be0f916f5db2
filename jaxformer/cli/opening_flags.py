"""Flags of how a run, or a folder of Hugging Face, is opened."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

__all__ = ["Opening", "ParamsMesh", "RunFolder"]

RunFolder = Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


@dataclasses.dataclass(frozen=True)
class ParamsMesh:
    """Devices that the parameters are split over, as in training.

    When not given, one device has them all, where there is room.
    """

    fsdp: int | None = None
    """Devices over which the parameters are split by their rows."""

    tensor: int | None = None
    """Devices over which the attention heads, feed-forward layers and vocabulary are split."""


@dataclasses.dataclass(frozen=True)
class Opening:
    """How a run, or a folder of Hugging Face, is opened."""

    step: int | None = None
    """Checkpoint of a run to use; the one with the lowest validation loss when not given."""

    dtype: Literal["float32", "bfloat16"] | None = None
    """Of a folder of Hugging Face: dtype of parameters and computation; that of its files when not
    given."""

    max_len: int | None = None
    """Of a folder of Hugging Face: longest text in tokens; what its config says when not given."""

    ignore: tuple[str, ...] = ()
    """Of a folder of Hugging Face: fields of its JSON files that are known not to matter. Of a run
    whose model comes from one: settings of generation there that are not supported, likewise."""

    source_language: str | None = None
    """Of a folder of Hugging Face whose model translates several languages: the one that is read,
    such as eng_Latn or en."""

    target_language: str | None = None
    """Likewise the one that is written, such as kan_Knda or kn."""

    base: pathlib.Path | None = None
    """Of a run with LoRA, where the run or folder lies now whose weights it has matrices beside;
    where it was in training when not given."""

    mesh: ParamsMesh = ParamsMesh()
