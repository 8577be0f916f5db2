"""Writes documents as pages, one for each, with a page of contents."""

import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from html import escape

from chapters import Chapter
from fragments import page_html, prose_html
from steps import Document

__all__ = ["Contents", "drafted"]

_INDEX = "index.html"


@contextlib.contextmanager
def drafted(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder to write to, whose files move into another one at the end, or not at all.

    Args:
        folder: where they go, created if missing; the index comes last.

    Yields:
        The folder of the draft, inside the other one. It is removed, whatever happens.

    Example:
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> with drafted(folder) as draft:
        ...     _ = (draft / "index.html").write_text("whole")
        >>> [path.name for path in folder.iterdir()]
        ['index.html']
    """
    folder.mkdir(parents=True, exist_ok=True)
    draft = pathlib.Path(tempfile.mkdtemp(prefix="draft-", dir=folder))
    try:
        yield draft
        for path in sorted(draft.iterdir(), key=lambda path: path.name == _INDEX):
            path.replace(folder / path.name)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


class Contents:
    """A folder with a page for each document, and `index.html`, which links to every step.

    Args:
        folder: folder to write to, which exists.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._chapters: list[Chapter] = []

    def add(self, document: Document) -> None:
        """Runs the steps of a document, and writes their files."""
        self._chapters.append(Chapter(document, self.folder))

    def write(self, title: str, about: str) -> None:
        """Writes the pages of all documents, and the one of contents."""
        previous: list[Chapter | None] = [None, *self._chapters[:-1]]
        following: list[Chapter | None] = [*self._chapters[1:], None]
        for before, chapter, after in zip(previous, self._chapters, following, strict=True):
            document, turn = chapter.document, _turn(before, after)
            head = _head(document) + f"\n<nav>{_links(chapter, '')}</nav>"
            body = "\n".join([turn, head, chapter.body, turn])
            self._save(chapter.file_name, f"{document.title} · {title}", body)
        entries = [
            f'<section class="step"><h2><a href="{chapter.file_name}">'
            f"{escape(chapter.document.title)}</a></h2>\n"
            f"<p>{prose_html(chapter.document.about)}</p>\n"
            f"<nav>{_links(chapter, chapter.file_name)}</nav></section>"
            for chapter in self._chapters
        ]
        heading = f"<h1>{escape(title)}</h1>\n<p>{prose_html(about)}</p>"
        self._save(_INDEX, title, "\n".join([heading, *entries]))

    def _save(self, name: str, title: str, body: str) -> None:
        (self.folder / name).write_text(page_html(title, body), encoding="utf-8")


def _head(document: Document) -> str:
    return (
        f"<h1>{escape(document.title)}</h1>\n<p>{prose_html(document.about)}</p>\n"
        f'<p class="source">{escape(document.source)}</p>'
    )


def _turn(before: Chapter | None, after: Chapter | None) -> str:
    """Links to the previous and the next chapter, and to the contents between them."""
    parts = ["<span></span>", f'<a href="{_INDEX}">Contents</a>', "<span></span>"]
    if before is not None:
        parts[0] = f'<a rel="prev" href="{before.file_name}">← {escape(before.document.title)}</a>'
    if after is not None:
        parts[2] = f'<a rel="next" href="{after.file_name}">{escape(after.document.title)} →</a>'
    return f'<nav class="turn" aria-label="Chapters">{"".join(parts)}</nav>'


def _links(chapter: Chapter, page: str) -> str:
    """Links to all steps of a chapter, on a page; on the same one if it is empty."""
    steps = zip(chapter.anchors, chapter.document.steps, strict=True)
    items = (f'<li><a href="{page}#{a}">{escape(step.title)}</a></li>' for a, step in steps)
    return f"<ol>{''.join(items)}</ol>"
