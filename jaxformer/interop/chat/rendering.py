"""Rendering of chat templates with jinja2's sandbox, as transformers renders them."""

import datetime
import functools
import json
from typing import Any, NoReturn

from jaxformer.errors import ConfigError, DataError


def render(template: str, **values: Any) -> str:
    """Renders a chat template with these JSON values."""
    try:
        environment = _environment()
    except ImportError:
        raise ConfigError(
            'a chat template needs jinja2, which is not installed; pip install "jaxformer[hf]"'
        ) from None
    try:
        return environment.from_string(template).render(**values)
    except Exception as error:  # untrusted code may raise any exception
        raise DataError(f"the chat template cannot be used for these messages: {error}") from error


@functools.cache
def _environment() -> Any:
    """Sandbox with the settings and functions of transformers."""
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """The tag {% generation %} around answers, which has no effect here."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)  # jinja2's escapes HTML

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment
