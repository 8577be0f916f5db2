"""Rendering of chat templates with jinja2, in a separate process."""

import importlib.util
import json
import pathlib
import subprocess
import sys
from typing import Any

from jaxformer.errors import ConfigError, DataError

_PROGRAM = pathlib.Path(__file__).with_name("process.py")
# A template is untrusted code. It may loop forever or fill the memory; only a separate process can
# be stopped then.
_LIMITS = {"seconds": 10, "memory": 2**30, "characters": 2**24}


def render(template: str, **values: Any) -> str:
    """Renders a chat template with these JSON values; starting the process takes 0.1 s."""
    if importlib.util.find_spec("jinja2") is None:
        raise ConfigError(
            'a chat template needs jinja2, which is not installed; pip install "jaxformer[hf]"'
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
    # Without an answer, the process was stopped.
    error = answer.get("error", f"it takes more than {_LIMITS['seconds']} seconds")
    raise DataError(f"the chat template cannot be used for these messages: {error}")
