"""The page of a document: what each step gives, beside its code."""

import csv
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

from formulas import draw_formula
from fragments import code_html, prose_html, table_html
from listings import callees, file_name, listing
from steps import Document, Shown, Side, Step, Table

__all__ = ["Chapter"]

# Of the half of a page that stands beside the code: CSS pixels of a figure, characters of a table.
_WIDEST_FIGURE, _WIDEST_TABLE = 700, 70


class Chapter:
    """A document whose steps are run, and the files that its page names.

    A function's source stands where the chapter first uses it; later steps link to it.

    Args:
        document: the document.
        folder: folder of the page and its files, which exists.
    """

    def __init__(self, document: Document, folder: pathlib.Path) -> None:
        self.document = document
        self.file_name = f"{document.name}.html"
        self.anchors = [f"{document.name}-{n}" for n in range(1, len(document.steps) + 1)]
        self._folder = folder
        self._listed: list[Callable[..., Any]] = []
        self.body = "\n".join(
            self._step(number, step) for number, step in enumerate(document.steps, 1)
        )

    def _step(self, number: int, step: Step) -> str:
        """The section of a step: its text, formula and results beside its code, wide ones below."""
        shown = step.show()
        prefix = f"{self.document.name}_{number:02}"
        heading = (
            f'<h2 id="{self.anchors[number - 1]}">{number}. {escape(step.title)} '
            f"<small>{step.lines_text}</small></h2>"
        )
        text = f"<p>{prose_html(shown.text)}</p>"
        if shown.sides:
            sides = "\n".join(self._side(prefix, side) for side in shown.sides)
            parts = [text, f'<div class="beside">{sides}</div>']
        else:
            files = list(self._files(prefix, shown))
            left = [text, *self._formulas(prefix, step.formula)]
            left += [html for html, is_wide in files if not is_wide]
            columns = _column("shown", left) + _column("how", [self._code(step.show)])
            parts = [f'<div class="beside">{columns}</div>']
            parts += [f'<div class="wide">{html}</div>' for html, is_wide in files if is_wide]
        return "\n".join(['<section class="step">', heading, *parts, "</section>"])

    def _side(self, prefix: str, side: Side) -> str:
        prefix = f"{prefix}_{side.title.lower()}"
        parts = [
            f"<h3>{escape(side.title)}</h3>",
            *self._formulas(prefix, side.formula),
            self._code(side.function),
            self._table(prefix, side.caption, side.table),
        ]
        return _column(f"side {side.title.lower()}", parts)

    def _formulas(self, prefix: str, formula: str) -> Iterator[str]:
        """Draws each line of a formula, and yields how the page shows it."""
        for index, line in enumerate(filter(None, formula.split(r" \\ ")), 1):
            path = self._folder / f"{prefix}_formula_{index}.svg"
            draw_formula(line, path)
            yield f'<div class="formula"><img src="{path.name}" alt="{escape(line)}"></div>'

    def _code(self, function: Callable[..., Any]) -> str:
        """Source of a function and of what it calls; links to what the page has already."""
        blocks, links = [], []
        for callee in [function, *callees(function)]:
            stem, name = pathlib.Path(file_name(callee)).stem, callee.__name__
            anchor = f"{stem}-{name}"
            if callee in self._listed:
                links.append(f'<a href="#{anchor}"><code>{name}</code></a>')
                continue
            self._listed.append(callee)
            blocks.append(
                f'<figure class="code" id="{anchor}"><figcaption>{stem}.py</figcaption>'
                f"{code_html(listing(callee))}</figure>"
            )
        if links:
            blocks.append(f'<p class="defined">Defined above: {", ".join(links)}</p>')
        return "\n".join(blocks)

    def _files(self, prefix: str, shown: Shown) -> Iterator[tuple[str, bool]]:
        """Writes figures, tables and pages; yields HTML of each, and whether it is a wide one."""
        for stem, figure in shown.figures.items():
            path = self._folder / f"{prefix}_{stem}.png"
            figure.savefig(path)
            caption, width = escape(shown.captions[stem]), round(96 * figure.get_figwidth())
            yield (
                f'<figure class="figure"><img src="{path.name}" alt="{caption}" width="{width}" '
                f'loading="lazy"><figcaption>{caption}</figcaption></figure>',
                width > _WIDEST_FIGURE,
            )
        for title, table in shown.tables.items():
            lines = table.as_text()
            widths = [max(map(len, column)) + 2 for column in zip(*lines, strict=True)]
            yield self._table(prefix, title, table), sum(widths) > _WIDEST_TABLE
        for stem, page in shown.pages.items():
            path = self._folder / f"{prefix}_{stem}.html"
            path.write_text(page, encoding="utf-8")
            name = escape(stem.replace("_", " "))
            yield f'<p><a href="{path.name}">Open {name}</a></p>', False

    def _table(self, prefix: str, title: str, table: Table) -> str:
        """Writes a table as CSV too."""
        slug = re.sub(r"\W+", "_", title.lower()).strip("_")
        path = self._folder / f"{prefix}_{slug}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(table.as_text())
        return table_html(title, table)


def _column(kind: str, parts: Sequence[str]) -> str:
    return f'<div class="{kind}">' + "\n".join(parts) + "</div>"
