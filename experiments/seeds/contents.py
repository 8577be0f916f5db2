"""Writes the figures and tables of documents into a folder, with a page of contents."""

import csv
import html
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from steps import Document, Shown, Table

__all__ = ["Contents"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --quiet: #5a5a5a; --line: #d0d0d0 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #16181b; --quiet: #a8a8a8; --line: #3c4046 }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 0 auto; padding: 1.5rem }
h1 { line-height: 1.2 } h2 { margin-top: 3rem; border-bottom: 1px solid var(--line) }
h3 { margin-top: 2.2rem }
h3 small, figcaption, caption, .source { color: var(--quiet); font-weight: normal }
a { color: inherit } nav ol { columns: 22rem } p { max-width: 42rem }
figure { margin: 1rem 0 } figcaption { font-size: .9rem }
img { max-width: 100%; height: auto; background: #fff }
th { white-space: nowrap }
.table { overflow-x: auto; margin: 1rem 0 }
table { border-collapse: collapse; font: 14px/1.4 ui-monospace, monospace }
caption { text-align: left; padding: .3rem 0 }
td, th { padding: .1rem .6rem; border-top: 1px solid var(--line); text-align: right }
th { font-weight: 600 }
"""


class Contents:
    """A folder of figures and tables, with `index.html`, which shows each beside its step.

    Args:
        folder: folder to write to, created if missing.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._links: list[str] = []
        self._sections: list[str] = []

    def add(self, document: Document) -> None:
        """Runs the steps of a document, writes their files, and adds a section to the page."""
        source = html.escape(document.source)
        parts = [f'<p>{_prose(document.about)}</p>\n<p class="source">{source}</p>']
        links = []
        for number, step in enumerate(document.steps, 1):
            shown, anchor = step.show(), f"{document.name}-{number}"
            parts.append(
                f'<h3 id="{anchor}">{number}. {html.escape(step.title)}'
                f" <small>{step.lines_text}</small></h3>\n<p>{_prose(shown.text)}</p>"
            )
            parts += self._files(f"{document.name}_{number:02}", shown)
            links.append(f'<li><a href="#{anchor}">{html.escape(step.title)}</a></li>')
        title = html.escape(document.title)
        self._links.append(
            f'<h2><a href="#{document.name}">{title}</a></h2><ol>{"".join(links)}</ol>'
        )
        self._sections.append(f'<section id="{document.name}"><h2>{title}</h2>\n')
        self._sections += [*parts, "</section>"]

    def write(self, title: str, about: str) -> pathlib.Path:
        """Writes the page; returns its path."""
        path = self.folder / "index.html"
        heading = html.escape(title)
        body = "\n".join(
            [f"<h1>{heading}</h1>", f"<p>{html.escape(about)}</p>", "<nav>", *self._links, "</nav>"]
            + self._sections
        )
        path.write_text(
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{heading}</title>\n<style>{_STYLE}</style></head>\n"
            f"<body>\n{body}\n</body></html>\n",
            encoding="utf-8",
        )
        return path

    def _files(self, prefix: str, shown: Shown) -> Iterator[str]:
        """Writes the tables, figures and pages of a step, and yields how the page shows them."""
        for title, table in shown.tables.items():
            lines = table.as_text()
            path = self.folder / f"{prefix}_{_slug(title)}.csv"
            with path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(lines)
            yield _table(title, table)
        for stem, figure in shown.figures.items():
            path = self.folder / f"{prefix}_{stem}.png"
            figure.savefig(path)
            caption = html.escape(shown.captions[stem])
            yield (
                f'<figure><img src="{path.name}" alt="{caption}" width="{_pixels(figure)}" '
                'loading="lazy">'
                f"<figcaption>{caption}</figcaption></figure>"
            )
        for stem, page in shown.pages.items():
            path = self.folder / f"{prefix}_{stem}.html"
            path.write_text(page, encoding="utf-8")
            yield f'<p><a href="{path.name}">Open {html.escape(stem.replace("_", " "))}</a></p>'


def _prose(text: str) -> str:
    """HTML of a text, in which backticks mark code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _pixels(figure: Any) -> int:
    """Width of a figure on the page, in CSS pixels; the file has more pixels."""
    return round(96 * figure.get_figwidth())


def _table(title: str, table: Table) -> str:
    names, *rows = table.as_text()
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in names)
    body = "".join(f"<tr>{_row(row)}</tr>" for row in rows)
    return (
        f'<div class="table"><table><caption>{html.escape(title)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(cells: Sequence[str]) -> str:
    name, *values = map(html.escape, cells)
    return f'<th scope="row">{name}</th>' + "".join(f"<td>{value}</td>" for value in values)


def _slug(title: str) -> str:
    """Part of a file name made from a title."""
    return re.sub(r"\W+", "_", title.lower()).strip("_")
