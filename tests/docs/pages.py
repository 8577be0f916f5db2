"""Reading the pages of the documentation, and running their cells."""

import re


def blocks(text, language, fence="```"):
    """The fenced blocks of a text in a language."""
    # All blocks in order, or the end of one would be taken for the start of another.
    matches = re.findall(rf"^{fence}(\S*)\n(.*?)^{fence}$", text, flags=re.DOTALL | re.MULTILINE)
    return [block for name, block in matches if name == language]


def run(code, name, namespace):
    """Runs a cell."""
    exec(compile(code, name, "exec"), namespace)


def dead_links(path, text):
    """Links of a page to files that are not there."""
    links = re.findall(r"\]\(((?!http)[^)#]+)", text)
    return [link for link in links if not (path.parent / link).exists()]
