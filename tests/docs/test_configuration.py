"""The tables of docs/configuration.md are those of the config dataclasses."""

import runpy

import docstring_parser


def test_tables_of_the_page_are_current():
    script = runpy.run_path("docs/config_keys.py")
    page = script["PAGE"].read_text(encoding="utf-8")
    assert page == script["updated"](page), "run: python docs/config_keys.py"


def test_no_line_of_a_description_begins_with_a_sign_or_a_digit():
    """Else --help breaks the line there, at any width of the terminal."""
    script = runpy.run_path("docs/config_keys.py")
    broken = [
        f"{table.__name__}.{parameter.arg_name}: {line.strip()}"
        for _, table in script["sections"]()
        for parameter in docstring_parser.parse(table.__doc__ or "").params
        for line in (parameter.description or "").splitlines()[1:]
        if not line.strip()[:1].isalpha()
    ]
    assert not broken, "\n".join(broken)
