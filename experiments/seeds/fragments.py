"""Pieces of HTML: prose, tables, code, and a whole page around its body."""

import pathlib
import re
from collections.abc import Sequence
from html import escape

from pygments import highlight  # which rich, a dependency, comes with
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from steps import Table

__all__ = ["code_html", "page_html", "prose_html", "table_html"]

_STYLE = pathlib.Path(__file__).with_name("contents.css")


def prose_html(text: str) -> str:
    """Text in which backticks mark code.

    Example:
        >>> prose_html("`a < b`, say.")
        '<code>a &lt; b</code>, say.'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def code_html(source: str) -> str:
    """Python, with a class for each kind of token that the style sheet colours.

    Example:
        >>> '<span class="mi">1</span>' in code_html("x = 1")
        True
    """
    return f"<pre><code>{highlight(source, PythonLexer(), HtmlFormatter(nowrap=True))}</code></pre>"


def table_html(title: str, table: Table) -> str:
    """Table under its title; the marked cells are of a class."""
    names, *rows = table.as_text()
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    marked = [[False] * len(table.columns)] * len(rows) if table.marked is None else table.marked
    body = "".join(f"<tr>{_row(*row)}</tr>" for row in zip(rows, marked, strict=True))
    return (
        f'<div class="table"><table><caption>{escape(title)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def page_html(title: str, body: str) -> str:
    """A page that needs no other file but the pictures that its body names."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>{_STYLE.read_text(encoding='utf-8')}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def _row(cells: Sequence[str], marked: Sequence[bool]) -> str:
    name, *values = map(escape, cells)
    opened = ['<td class="marked">' if mark else "<td>" for mark in marked]
    return f'<th scope="row">{name}</th>' + "".join(
        f"{tag}{value}</td>" for tag, value in zip(opened, values, strict=True)
    )
