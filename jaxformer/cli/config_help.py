"""Help of the options of a config: the most used ones first, then the others by table."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Annotated, Any

import tyro

from jaxformer.config.checks import field_types

__all__ = ["for_help"]

_OFTEN = {
    "training": ("steps", "batch_size", "batch_tokens", "devices"),
    "optimizer": ("learning_rate",),
    "model": ("max_len", "num_layers", "d_model", "num_heads"),
    "data": ("paths",),
}
_BASE = "for a LoRA run: current path of its base model, if it has moved."


def for_help(config: Any, *, with_base: bool) -> Any:
    """Unchecked copy of a config; its help in tyro begins with the most used options.

    These options are in tables without a name, which tyro puts into its first group.
    """
    arg, parts = tyro.conf.arg, {}
    hints: dict[str, Any] = {
        "out": Annotated[str | None, arg(metavar="OUT")],
        "init_from": Annotated[str | None, arg(metavar="RUN")],
    }
    if with_base:  # a flag of jaxformer train, not a key
        hints["base"] = Annotated[pathlib.Path | None, arg(metavar="RUN", help=_BASE)]
    for table, often in _OFTEN.items():
        for group, is_top in ((f"often_{table}", True), (table, False)):
            of_table = {}
            for name, hint in field_types(type(getattr(config, table))).items():
                shown = arg(name=f"{table}.{name}" if is_top else None)
                mark = shown if (name in often) == is_top else tyro.conf.Suppress
                of_table[name] = Annotated[hint, mark]
            parts[group] = _with_types(getattr(config, table), of_table)
            hints[group] = Annotated[type(parts[group]), arg(name="" if is_top else None)]
    return _with_types(config, hints, base=None, **parts)


def _with_types(config: Any, hints: Mapping[str, Any], **values: Any) -> Any:
    """Copy of a config with some field types replaced, and with new fields and values."""
    kind = type(config)
    made: Any = dataclasses.make_dataclass(
        kind.__name__, [(name, hint, None) for name, hint in hints.items()], bases=(kind,),
        namespace={"__doc__": kind.__doc__}, frozen=True, kw_only=True,
    )  # fmt: skip
    copied = object.__new__(made)
    copied.__dict__.update(config.__dict__ | values)
    return copied
