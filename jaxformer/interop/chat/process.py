"""Program that renders one chat template in the sandbox of jinja2, with limits.

`rendering.py` runs it in a separate process. It reads a JSON request from standard input, and
writes the text or an error as JSON. It imports nothing from the package, so it starts fast.
"""

import contextlib
import datetime
import json
import sys
from typing import Any, NoReturn


def main() -> None:
    """Answers a request with "path", "template", "values" and limits."""
    request = json.load(sys.stdin)
    with contextlib.suppress(ImportError, ValueError, OSError):  # no such limits on this system
        import resource

        seconds, memory = request["seconds"], request["memory"]
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    sys.path[:] = request["path"]
    try:
        answer = {"text": _environment().from_string(request["template"]).render(request["values"])}
        if len(answer["text"]) > request["characters"]:
            answer = {"error": f"it writes more than {request['characters']:,} characters"}
    except MemoryError:
        answer = {"error": f"it needs more than {request['memory']:,} bytes of memory"}
    except Exception as error:  # untrusted code may raise any exception
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


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

    def strftime_now(form: str) -> str:
        return datetime.datetime.now().strftime(form)

    def to_json(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
        sort_keys: bool = False,
    ) -> str:  # fmt: skip
        # The filter of jinja2 escapes HTML.
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)  # fmt: skip

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


if __name__ == "__main__":
    main()
