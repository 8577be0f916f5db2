"""Reading pages as a browser does: headings with what stands below, links, pictures, anchors."""

import html.parser
import urllib.parse

VOID = ("img", "meta", "br")


class Page(html.parser.HTMLParser):
    """Texts and pictures below each heading; code, links and ids, and where the page turns."""

    def __init__(self, path):
        super().__init__()
        self.sections, self.links, self.pictures, self.ids = {}, [], [], []
        self.turns, self.tags, self.code, self._open = {}, set(), [], []
        self._below = self.sections.setdefault("", [])
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.add(tag)
        if tag not in VOID:
            self._open.append(tag)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag == "a":
            self.links.append(attributes["href"])
            if "rel" in attributes:
                self.turns[attributes["rel"]] = attributes["href"]
        if tag == "img":
            self.pictures.append(attributes["src"])
            self._below.append(attributes["src"])
            assert attributes["alt"]
        if tag == "h2":
            self._heading = ""

    def handle_data(self, data):
        if "h2" in self._open:
            self._heading += data
        elif "pre" in self._open:
            self.code.append(data)
        elif data.strip() and "style" not in self._open:
            self._below.append(data.strip())

    def handle_endtag(self, tag):
        assert self._open.pop() == tag
        if tag == "h2":
            self._below = self.sections.setdefault(self._heading, [])
        if tag == "section":
            self._below = self.sections[""]


def check_site(folder, chapters):
    """From index.html every page is reached, and no link, anchor or picture is missing.

    Args:
        folder: of the site.
        chapters: files of its chapters, in their order; only these are read as pages.

    Returns:
        The chapters and the index, read, by file name.
    """
    pages = {name: Page(folder / name) for name in ("index.html", *chapters)}
    reached, named = set(), set()
    for name, page in pages.items():
        assert len(set(page.ids)) == len(page.ids)
        assert not {"script", "link", "iframe"} & page.tags
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            assert not parts.scheme and not parts.netloc
            target = parts.path or name
            reached.add(target)
            if parts.fragment:
                assert parts.fragment in pages[target].ids
        named.update(page.pictures)
    files = {path.name for path in folder.iterdir()}
    assert reached == {name for name in files if name.endswith(".html")}
    assert named == {name for name in files if name.endswith((".png", ".svg"))}
    turns = [pages[name].turns for name in chapters]
    assert [turn.get("next") for turn in turns] == [*chapters[1:], None]
    assert [turn.get("prev") for turn in turns] == [None, *chapters[:-1]]
    return pages
