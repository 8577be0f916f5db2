"""The directive `reference`: a summary table of names of a module, then the names in full."""

import importlib

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Reference(SphinxDirective):
    """Documents the names in its content; the page api/NAME is that of the module jaxformer.NAME.

    A line "NAME: text" describes what has no docstring, such as an alias of a type.
    """

    has_content = True
    option_spec = {"inherited-members": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Makes the table and the entries."""
        room = self.env.docname.replace("api/", "jaxformer.")
        summary, entries = [".. autosummary::", "   :nosignatures:", ""], []
        for line in self.content:
            name, _, text = line.partition(": ")
            thing = getattr(importlib.import_module(room), name)
            if text:
                entries += [f".. py:data:: {name}", "", f"   {text[0].upper()}{text[1:]}", ""]
                continue
            summary.append(f"   {name}")
            if isinstance(thing, type):
                entries += [f".. autoclass:: {name}", "   :members:"]
                entries += [*(f"   :{option}:" for option in self.options), ""]
            else:
                entries += [f".. autofunction:: {name}", ""]
        lines = [f".. currentmodule:: {room}", "", *summary, "", *entries]
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("reference", Reference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
