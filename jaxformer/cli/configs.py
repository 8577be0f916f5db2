"""jaxformer configs: list and print the built-in configs."""

import re
import textwrap

from jaxformer.cli.commands import Configs
from jaxformer.cli.terminal import show, width
from jaxformer.config import ready_configs
from jaxformer.config.ready import ready_hint
from jaxformer.errors import ConfigError

__all__ = ["configs"]


def configs(command: Configs) -> None:
    """Lists the built-in configs with their purpose, or prints the text of one."""
    texts = {name: path.read_text(encoding="utf-8") for name, path in ready_configs().items()}
    if command.name is not None:
        if command.name not in texts:
            raise ConfigError(
                f"there is no built-in config {command.name!r}{ready_hint(command.name)}"
            )
        show(texts[command.name], end="")
        return
    indent = max(map(len, texts)) + 2
    for name, text in texts.items():
        line = f"{name:<{indent}}{_purpose(text)}"
        show(textwrap.fill(line, width(), subsequent_indent=" " * min(indent, width() // 2)))


def _purpose(text: str) -> str:
    """First sentence of the comment at the top of a config, and its training time."""
    head = re.sub(r"\n# ?", " ", text.partition("\n\n")[0].removeprefix("# "))
    sentence = re.split(r"(?<=\.)\s", head)[0]
    time = re.search(r"Time:\s+(.*?)[.;](?:\s|$)", head)
    return f"{sentence} Time: {time[1]}." if time else sentence
