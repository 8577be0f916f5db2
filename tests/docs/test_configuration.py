"""The tables of docs/configuration.md are those of the config dataclasses."""

import runpy


def test_tables_of_the_page_are_current():
    script = runpy.run_path("docs/config_keys.py")
    page = script["PAGE"].read_text(encoding="utf-8")
    assert page == script["updated"](page), "run: python docs/config_keys.py"
