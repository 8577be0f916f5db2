"""Flags of the commands that open a run or a Hugging Face folder."""

import dataclasses
import pathlib
from typing import Annotated, Any, Literal

import tyro

__all__ = ["ModelSource", "Opening", "ParamsMesh", "RunFolder", "by_default"]

RunFolder = Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


def by_default(what: str, metavar: str | None = None) -> Any:
    """Makes the help of an option say what its default, such as None, means."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {what})", metavar=metavar)


@dataclasses.dataclass(frozen=True)
class ParamsMesh:
    """Devices of this host to split the parameters over.

    By default, one device holds all parameters if they fit; otherwise they are split as in
    training, or over all devices.
    """

    fsdp: Annotated[int | None, by_default("automatic")] = None
    """Devices that split the parameters by rows."""

    tensor: Annotated[int | None, by_default("automatic")] = None
    """Devices that split the attention heads, feed-forward layers and vocabulary."""


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """Which weights to read from a run, and which languages from a Hugging Face folder."""

    step: Annotated[int | None, by_default("the one with the lowest validation loss")] = None
    """Checkpoint of the run to use."""

    source_language: Annotated[str | None, by_default("the folder's")] = None
    """For a multilingual Hugging Face translator: source language, such as eng_Latn or en."""

    target_language: Annotated[str | None, by_default("the folder's")] = None
    """For a multilingual Hugging Face translator: target language, such as kan_Knda or kn."""

    base: Annotated[pathlib.Path | None, by_default("its path during training")] = None
    """For a LoRA run: current path of its base model."""


@dataclasses.dataclass(frozen=True)
class Opening(ModelSource):
    """How to open a run or a Hugging Face folder."""

    dtype: Annotated[Literal["float32", "bfloat16"] | None, by_default("as in its files")] = None
    """For a Hugging Face folder: dtype of parameters and computation."""

    max_len: Annotated[int | None, by_default("as in its config")] = None
    """For a Hugging Face folder: longest text, in tokens."""

    ignore: Annotated[tuple[str, ...], by_default("none")] = ()
    """For a Hugging Face folder: fields of its JSON files that you know to be irrelevant.
    For a run made from one: unsupported generation settings that you know to be irrelevant."""

    mesh: ParamsMesh = ParamsMesh()
