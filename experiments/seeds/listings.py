"""Source of the functions that a page shows, as they run, and of those that they call."""

import ast
import inspect
import pathlib
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["callees", "file_name", "listing"]

_FOLDER = pathlib.Path(__file__).resolve().parent


def listing(function: Callable[..., Any]) -> str:
    """Source of a function, with its decorators; `...` stands for the prose of a `Shown` in it.

    Args:
        function: as it runs; also one that is compiled or cached.

    Example:
        >>> print(listing(file_name).splitlines()[0])
        def file_name(function: Callable[..., Any]) -> str:
    """
    # The columns of a syntax tree count bytes.
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function))).encode()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in sorted(_prose(ast.parse(source)), key=_place, reverse=True):
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[node.end_lineno - 1] + node.end_col_offset
        source = source[:first] + b"..." + source[last:]
    return source.decode().rstrip()


def callees(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Functions of this folder that a function calls, itself or through another of them.

    Args:
        function: of a module of this folder.

    Returns:
        Each once: those that it names first, and after each what that one calls.

    Example:
        >>> [callee.__name__ for callee in callees(listing)]
        ['_prose', '_place']
    """
    functions = [function]
    _follow(function, functions)
    return functions[1:]


def file_name(function: Callable[..., Any]) -> str:
    """Name of the file in which a function is defined.

    Example:
        >>> file_name(listing)
        'listings.py'
    """
    return pathlib.Path(inspect.unwrap(function).__code__.co_filename).name


def _follow(function: Callable[..., Any], functions: list[Callable[..., Any]]) -> None:
    known = inspect.unwrap(function).__globals__
    tree = ast.parse(listing(function))
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    for node in sorted(names, key=_place):
        value = known.get(node.id)
        if _is_of_folder(value) and value not in functions:
            functions.append(value)
            _follow(value, functions)


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _is_of_folder(value: Any) -> bool:
    """Whether a value is a function that a module of this folder defines."""
    code = getattr(inspect.unwrap(value), "__code__", None)
    return code is not None and pathlib.Path(code.co_filename).resolve().parent == _FOLDER


def _prose(tree: ast.AST) -> Iterator[ast.expr]:
    """Text and captions of every `Shown` that is made in a tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Shown":
            yield node.args[0]
            yield from node.args[3:4]
            yield from (word.value for word in node.keywords if word.arg == "captions")
