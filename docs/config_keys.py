"""Writes the tables of every config key into docs/configuration.md, from the config dataclasses.

Run it after a change to a config: python docs/config_keys.py. A test compares the page with it.
"""

import dataclasses
import json
import pathlib
import re
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from jaxformer.config import ExperimentConfig, LayerConfig, MeshRule, MixtureSourceConfig
from jaxformer.config.checks import descriptions, field_types, kinds_of, union_members

PAGE = pathlib.Path(__file__).with_name("configuration.md")
HEADING = "## Every key\n"  # all that follows it is written by this script


def sections() -> Iterator[tuple[str, type]]:
    """Title and config class of every table, such as ("`[model]`", ModelConfig)."""
    yield "Top level", ExperimentConfig
    for name, hint in field_types(ExperimentConfig).items():
        yield from _tables(name, hint)
    yield "`[[model.layers]]` and `[[model.first_layers]]`", LayerConfig
    yield "`[[data.mixture]]`", MixtureSourceConfig
    yield "`[[mesh.rules]]`", MeshRule


def _tables(key: str, hint: Any) -> Iterator[tuple[str, type]]:
    kinds = kinds_of(hint)
    members = union_members(hint)  # of which a table that may be left out has one
    if kinds is None and not (len(members) == 1 and dataclasses.is_dataclass(members[0])):
        return
    configs = {"": members[0]} if kinds is None else kinds.configs
    for kind, config in configs.items():
        yield f'`[{key}]` with `{kinds.key} = "{kind}"`' if kinds else f"`[{key}]`", config
        for name, inner in field_types(config).items():
            yield from _tables(f"{key}.{name}", inner)


def rows(config: type) -> Iterator[tuple[str, str, str, str]]:
    """Key, type, default and description of each setting of a config class."""
    described = descriptions(config)
    hints = field_types(config)
    for field in dataclasses.fields(config):
        yield (
            field.name,
            _type_text(hints[field.name]),
            _default_text(field),
            described.get(field.name, ""),
        )


def _type_text(hint: Any) -> str:
    """A type as a reader of TOML would say it, in Markdown."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if kinds := kinds_of(hint):
        return f"table with `{kinds.key}` {_choices(kinds.configs)}"
    if origin is typing.Literal:
        return _choices(arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type_text(one) for one in arguments if one is not type(None))
    if origin is tuple:
        return f"list of {_type_text(arguments[0])}"
    if dataclasses.is_dataclass(hint):
        return "table"
    return str(getattr(hint, "__name__", hint))


def _choices(values: Iterable[Any]) -> str:
    return ", ".join(f"`{json.dumps(value)}`" for value in values)


def _default_text(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING or dataclasses.is_dataclass(field.default):
        return ""
    if field.default is dataclasses.MISSING:
        return "required"
    return "not set" if field.default is None else f"`{json.dumps(field.default)}`"


def _escaped(text: str) -> str:
    """Text for a cell of a table, where pipes are escaped in code, too."""
    parts = re.split("(`[^`]*`)", text)
    parts[::2] = [re.sub(r"[<$]", r"\\\g<0>", part) for part in parts[::2]]
    return "".join(parts).replace("|", r"\|")


def every_key() -> str:
    """The section of the page under its heading."""
    found, links = dict(sections()), {}
    for title in found:
        if table := re.match(r"`\[\w+\]`", title):  # of several kinds the first
            links.setdefault(table[0], re.sub(r"[^\w -]", "", title).replace(" ", "-"))
    lines = ["", f"Tables: {', '.join(f'[{table}](#{links[table]})' for table in links)}.", ""]
    for title, config in found.items():
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
