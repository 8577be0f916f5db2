"""Rendering of chat templates by jinja2, in a process of its own."""

import importlib.util
import json
import pathlib
import subprocess
import sys
from typing import Any

from jaxformer.errors import ConfigError, DataError

__all__ = ["render"]

_PROGRAM = pathlib.Path(__file__).with_name("chat_process.py")
# A template is a stranger's program, whose loops may be endless, and whose products may be larger
# than the memory. Only another process can be ended whatever it does.
_LIMITS = {"seconds": 10, "memory": 2**30, "characters": 2**24}


def render(template: str, **values: Any) -> str:
    """Renders a chat template; it takes 0.1 s, the start of a process.

    Args:
        template: program in the language of Jinja.
        **values: what it is given, as JSON has it.

    Returns:
        The text.

    Raises:
        ConfigError: jinja2 is missing.
        DataError: the template is wrong, refuses the values, or takes more than 10 seconds, 1 GiB
            of memory or 16 million characters.

    Example:
        >>> render("{{ name | upper }}!", name="ada")
        'ADA!'
    """
    if importlib.util.find_spec("jinja2") is None:
        raise ConfigError(
            "a chat template needs jinja2, which is not installed; pip install jaxformer[hf]"
        )
    request = {"path": sys.path, "template": template, "values": values, **_LIMITS}
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(_PROGRAM)], input=json.dumps(request).encode(),
            capture_output=True, timeout=2 * _LIMITS["seconds"],
        )  # fmt: skip
        answer = json.loads(done.stdout) if done.stdout else {}
    except subprocess.TimeoutExpired:
        answer = {}
    if "text" in answer:
        return str(answer["text"])
    # Without an answer its process was ended.
    error = answer.get("error", f"it takes more than {_LIMITS['seconds']} seconds")
    raise DataError(f"the chat template cannot be used for these messages: {error}")
