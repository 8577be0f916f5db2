"""The directive `config-keys`: a table of every key of an experiment config, from its dataclasses.

Types, defaults and descriptions are read from the code, so that the page cannot disagree with it.
"""

import dataclasses
import json
import types
import typing
from collections.abc import Iterator
from typing import Any

import docstring_parser
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from jaxformer.config import ExperimentConfig, LayerConfig, MeshRule, MixtureSourceConfig
from jaxformer.config.checks import field_types, union_members
from jaxformer.config.kinds import kinds_of


def sections() -> Iterator[tuple[str, type]]:
    """Every table of a config file, such as ("model", ModelConfig), kinds of a table after it."""
    yield "", ExperimentConfig
    for name, hint in field_types(ExperimentConfig).items():
        yield from _tables(name, hint)
    yield "[[model.layers]], [[model.first_layers]]", LayerConfig
    yield "[[data.mixture]]", MixtureSourceConfig
    yield "[[mesh.rules]]", MeshRule


def _tables(key: str, hint: Any) -> Iterator[tuple[str, type]]:
    kinds = kinds_of(hint)
    members = union_members(hint)  # of which a table that may be left out has one
    if kinds is None and not (len(members) == 1 and dataclasses.is_dataclass(members[0])):
        return
    configs = {"": members[0]} if kinds is None else kinds.configs
    for kind, config in configs.items():
        yield f'{key} of {kinds.key} "{kind}"' if kinds else key, config
        for name, inner in field_types(config).items():
            yield from _tables(f"{key}.{name}", inner)


def rows(config: type) -> Iterator[tuple[str, str, str, str]]:
    """Key, type, default and description of each setting of a config class."""
    described: dict[str, str] = {}
    for parent in reversed(config.__mro__):  # a subclass describes its own keys only
        for parameter in docstring_parser.parse(parent.__doc__ or "").params:
            described[parameter.arg_name] = " ".join((parameter.description or "").split())
    hints = field_types(config)
    for field in dataclasses.fields(config):
        yield (
            field.name,
            _type_text(hints[field.name]),
            _default_text(field),
            described.get(field.name, ""),
        )


def _type_text(hint: Any) -> str:
    """A type as a reader of TOML would say it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if kinds := kinds_of(hint):
        return f"table of {kinds.key} {' | '.join(map(json.dumps, kinds.configs))}"
    if origin is typing.Literal:
        return " | ".join(json.dumps(value) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(_type_text(one) for one in arguments if one is not type(None))
    if origin is tuple:
        return f"list of {_type_text(arguments[0])}"
    if dataclasses.is_dataclass(hint):
        return "table"
    return getattr(hint, "__name__", str(hint))


def _default_text(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING or dataclasses.is_dataclass(field.default):
        return ""
    if field.default is dataclasses.MISSING:
        return "required"
    if field.default is None:
        return "not set"
    return json.dumps(field.default)


class ConfigKeys(SphinxDirective):
    """A section with a table of keys for each table of the config."""

    def run(self) -> list[nodes.Node]:
        """Makes the sections."""
        return [node for title, config in sections() for node in self._section(title, config)]

    def _section(self, title: str, config: type) -> list[nodes.Node]:
        section = nodes.section(ids=[nodes.make_id(f"keys-{title or 'top'}")])
        section += nodes.title(text=title or "Top level")
        summary = docstring_parser.parse(config.__doc__ or "").short_description or ""
        section += nodes.paragraph(text=summary)
        section += _table(("key", "type", "default", "meaning"), list(rows(config)))
        return [section]


def _table(header: tuple[str, ...], body: list[tuple[str, ...]]) -> nodes.table:
    group = nodes.tgroup(cols=len(header))
    group += [nodes.colspec(colwidth=width) for width in (20, 25, 12, 43)]
    group += nodes.thead("", _row(header, code=False))
    group += nodes.tbody("", *(_row(row, code=True) for row in body))
    return nodes.table("", group)


def _row(cells: tuple[str, ...], *, code: bool) -> nodes.row:
    row = nodes.row()
    for column, cell in enumerate(cells):
        is_code = code and column < 3 and cell
        content = nodes.literal(text=cell) if is_code else nodes.Text(cell)
        row += nodes.entry("", nodes.paragraph("", "", content))
    return row


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("config-keys", ConfigKeys)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
