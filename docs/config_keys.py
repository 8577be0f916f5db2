"""Writes the tables of every config key into docs/configuration.md, from the config dataclasses.

Run it after a change to a config: python docs/config_keys.py. A test compares the page with it.
"""

import dataclasses
import json
import pathlib
import re
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from jaxformer.config import (
    DepthRule,
    ExperimentConfig,
    LayerConfig,
    MixtureSourceConfig,
)
from jaxformer.config.checks import Key, keys_of

PAGE = pathlib.Path(__file__).with_name("configuration.md")
HEADING = "## Every key\n"  # all that follows it is written by this script


def sections() -> Iterator[tuple[str, type]]:
    """Title and config class of every table, such as ("`[model]`", ModelConfig)."""
    yield "Top level", ExperimentConfig
    yield from _tables(ExperimentConfig, "")
    yield "`[[model.layers]]` and `[[model.first_layers]]`", LayerConfig
    yield "`[[data.mixture]]`", MixtureSourceConfig
    yield "Each rule of `[by_depth]`", DepthRule


def _tables(config: type, prefix: str) -> Iterator[tuple[str, type]]:
    for name, key in keys_of(config).items():
        tables = {} if key.table is None else {f"`[{prefix}{name}]`": key.table}
        if key.kinds:
            tables = {
                f'`[{prefix}{name}]` with `{key.tag} = "{kind}"`': inner
                for kind, inner in key.kinds.items()
            }
        for title, inner in tables.items():
            yield title, inner
            yield from _tables(inner, f"{prefix}{name}.")


def rows(config: type) -> Iterator[tuple[str, str, str, str]]:
    """Key, type, default and description of each setting of a config class."""
    for name, key in keys_of(config).items():
        yield name, _type_text(key), _default_text(key.default), key.description


def _type_text(key: Key) -> str:
    """A type as a reader of TOML would say it, in Markdown."""
    if key.kinds:
        return f"table with `{key.tag}` {_choices(key.kinds)}"
    if key.element is not None:
        return f"list of {_type_text(key.element)}"
    if key.table is not None:
        return "table"
    return " or ".join(
        _choices(typing.get_args(member)) or member.__name__ for member in key.members
    )


def _choices(values: Iterable[Any]) -> str:
    return ", ".join(f"`{json.dumps(value)}`" for value in values)


def _default_text(default: Any) -> str:
    if dataclasses.is_dataclass(default):
        return ""
    if default is dataclasses.MISSING:
        return "required"
    return "not set" if default is None else f"`{json.dumps(default)}`"


def _escaped(text: str) -> str:
    """Text for a cell of a table, where pipes are escaped in code, too."""
    parts = re.split("(`[^`]*`)", text)
    parts[::2] = [re.sub(r"[<$]", r"\\\g<0>", part) for part in parts[::2]]
    return "".join(parts).replace("|", r"\|")


def every_key() -> str:
    """The section of the page under its heading."""
    configs, links = dict(sections()), {}
    for title in configs:
        if table := re.match(r"`\[\w+\]`", title):  # of several kinds the first
            links.setdefault(table[0], re.sub(r"[^\w -]", "", title).replace(" ", "-"))
    lines = ["", f"Tables: {', '.join(f'[{table}](#{links[table]})' for table in links)}.", ""]
    for title, config in configs.items():
        summary = (config.__doc__ or "").partition("\n")[0]
        lines += [f"### {title}", "", summary, "", "| key | type | default | meaning |"]
        lines += ["|---|---|---|---|"]
        for key, kind, default, meaning in rows(config):
            cells = " | ".join((f"`{key}`", kind, default, _escaped(meaning)))
            lines.append(f"| {cells} |")
        lines.append("")
    return "\n".join(lines)


def updated(page: str) -> str:
    """The page with its tables as the code has them now."""
    return page.partition(HEADING)[0] + HEADING + every_key()


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
