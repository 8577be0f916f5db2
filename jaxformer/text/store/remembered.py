"""Values of JSON that are made once, and kept in a file of the cache."""

import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

from jaxformer.storage import make_folder, write_whole

_T = TypeVar("_T")


def remembered(
    stem: pathlib.Path | None,
    make: Callable[[], _T],
    pack: Callable[[_T], Any],
    unpack: Callable[[Any], _T],
) -> _T:
    """Makes a value once: later calls read it from a file, unless that is damaged.

    `stem` is the path of the file without suffix, named by a hash of all that the value depends on;
    None remembers nothing. `pack` returns values of JSON, and `unpack` is the inverse.
    """
    if stem is None:
        return make()
    path = stem.with_name(f"{stem.name}.json")
    try:
        digest, _, content = path.read_text(encoding="utf-8").partition("\n")
    except (OSError, ValueError):
        digest = content = ""
    if digest != _digest(content):
        content = json.dumps(pack(make()))
        make_folder(path.parent)
        write_whole(path, f"{_digest(content)}\n{content}")
    return unpack(json.loads(content))


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()
