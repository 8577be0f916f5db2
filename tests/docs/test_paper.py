"""What docs/paper.md calls the paper's base model is the built-in config."""

import pathlib

from jaxformer.config import load_config
from tests.docs.pages import blocks, run

PAGE = pathlib.Path("docs/paper.md").read_text(encoding="utf-8")


def test_settings_on_the_page_are_those_of_the_ready_config():
    page, ready = {}, load_config("configs/transformer_base.toml")
    run(blocks(PAGE, "python")[0], "docs/paper.md", page)
    got = [page[name] for name in ("base", "adam", "noam", "search")]
    assert got == [ready.model, ready.optimizer, ready.schedule, ready.translation]
