"""Rendering of chat templates by jinja2, in its sandbox, with the settings of transformers."""

import datetime
import functools
import json
from typing import Any, NoReturn

from jaxformer.errors import ConfigError, DataError

__all__ = ["render"]


def render(template: str, **values: Any) -> str:
    """Renders a chat template.

    Args:
        template: program in the language of Jinja.
        **values: what it is given.

    Returns:
        The text.

    Raises:
        ConfigError: jinja2 is missing.
        DataError: the template is wrong, or refuses the values.

    Example:
        >>> render("{{ name | upper }}!", name="ada")
        'ADA!'
    """
    try:
        import jinja2  # noqa: F401
    except ImportError:
        raise ConfigError(
            "a chat template needs jinja2, which is not installed; pip install jaxformer[hf]"
        ) from None
    try:
        return str(_compiled(template).render(**values))
    except Exception as error:  # of a stranger's program, which may raise whatever Python does
        raise DataError(f"the chat template cannot be used for these messages: {error}") from None


@functools.lru_cache(16)
def _compiled(template: str) -> Any:
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """The tag {% generation %} around answers, which changes nothing here."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.TemplateError(message)

    def strftime_now(form: str) -> str:
        return datetime.datetime.now().strftime(form)

    def to_json(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
        sort_keys: bool = False,
    ) -> str:  # fmt: skip
        # The filter of jinja2 escapes letters for HTML.
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)  # fmt: skip

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment.from_string(template)
