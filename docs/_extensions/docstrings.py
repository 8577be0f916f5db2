"""Docstrings for Sphinx: Markdown's formulas, tables and `code`s as reStructuredText has them."""

import re
from typing import Any

from sphinx.application import Sphinx

_DISPLAYED = re.compile(r"^( *)\$\$(.+?)\$\$ *$", flags=re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<![\w$`])\$([^$`]+?)\$(?![\w$])")
_SUFFIX = re.compile(r"(?<!`)(`[^`\n]+`)(?=\w)")
_LONE_LETTER = re.compile(r"^( +\w+: )(?=[A-Za-z]\.)", flags=re.MULTILINE)  # or it is a list's mark
_TABLE = re.compile(r"(?:^ *\|.*\|$\n?)+", flags=re.MULTILINE)


def _convert(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Rewrites the lines of a docstring in place, as `autodoc-process-docstring` asks for it."""
    text = _TABLE.sub(lambda table: _list_table(table[0]), "\n".join(lines))
    text = _DISPLAYED.sub(
        lambda formula: f"\n{formula[1]}.. math:: {_one_line(formula[2])}\n", text
    )
    text = _INLINE.sub(lambda math: f":math:`{_one_line(math[1])}`", text)
    text = _LONE_LETTER.sub(r"\1\\", text)
    lines[:] = _SUFFIX.sub(r"\1\\ ", text).splitlines()


def _one_line(formula: str) -> str:
    return " ".join(formula.split())


def _list_table(table: str) -> str:
    header, _, *body = [line.strip().strip("|").split("|") for line in table.splitlines()]
    lines = ["", ".. list-table::", "   :header-rows: 1", ""]
    for row in (header, *body):
        marks = ["   * -", *["     -"] * (len(row) - 1)]
        lines += [f"{mark} {cell.strip()}" for mark, cell in zip(marks, row, strict=True)]
    return "\n".join([*lines, "", ""])


def _skip_field(
    app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any
) -> bool | None:
    """Leaves out the fields of named tuples, which their class describes."""
    return True if str(thing.__doc__).startswith("Alias for field number") else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the hooks, ahead of napoleon's, which reads the sections."""
    app.connect("autodoc-process-docstring", _convert, priority=100)
    app.connect("autodoc-skip-member", _skip_field)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
