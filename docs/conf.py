"""How Sphinx builds the documentation: sphinx-build -W docs docs/_build/html."""

import pathlib
import sys

import jaxformer

sys.path.insert(0, str(pathlib.Path(__file__).parent / "_extensions"))

project = "jaxformer"
author = "The jaxformer developers"
copyright = "2026, the jaxformer developers"  # noqa: A001 (Sphinx's name)
version = release = jaxformer.__version__

extensions = [
    "myst_nb",  # Markdown and notebooks
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "docstrings",
    "mathml",
    "reference",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"jaxformer {version}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]

# Pages are read offline: formulas are MathML, and nothing is loaded from the network.
html_math_renderer = "mathml"
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True

default_role = "literal"  # docstrings have code in single backticks
copybutton_prompt_text = r">>> |\.\.\. |\$ "  # is not copied, nor is what was printed
copybutton_prompt_is_regexp = True
autosummary_generate = False  # the tables lead to entries of the same page
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
