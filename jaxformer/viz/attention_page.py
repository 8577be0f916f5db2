"""The attention viewer: one HTML file with the attention weights of every layer and head."""

import base64
import hashlib
import html
import importlib.resources
import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxformer.errors import DataError, ShapeError
from jaxformer.viz.arrays import checked, visible

_MAX_CODE = 2**16 - 1  # weights are stored as 16-bit integers; this one means 1


class AttentionMap(NamedTuple):
    """Attention weights of one text, with its query tokens and key tokens.

    Args:
        name: name of the attention, such as "cross-attention".
        weights: float `[L, N, T, S]` of L layers and N heads; the weights of a query sum to 1, or
            to 0 if it attends to no key.
        query_tokens: the T tokens that attend.
        key_tokens: the S tokens that are attended to.
        next_tokens: the T tokens that a decoder predicts, one after each query token; None for
            other models.
    """

    name: str
    weights: npt.ArrayLike
    query_tokens: Sequence[str]
    key_tokens: Sequence[str]
    next_tokens: Sequence[str] | None = None


class AttentionPage(str):
    """HTML of an attention page; a notebook displays it as the result of a cell.

    Otherwise it is a str: `path.write_text(page, encoding="utf-8")` saves it.

    Example:
        >>> AttentionPage("<!doctype html>")
        <attention page of 15 characters>
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """Only the size; otherwise a notebook would also store the whole page as text."""
        return f"<attention page of {len(self):,} characters>"

    def _repr_html_(self) -> str:
        """A sandboxed frame, so that page and notebook share no styles or scripts."""
        return (
            f'<iframe srcdoc="{html.escape(self)}" sandbox="allow-scripts" title="Attention" '
            'style="width: 100%; height: 48rem; border: 0"></iframe>'
        )


def attention_page(maps: Sequence[AttentionMap], *, title: str = "Attention") -> AttentionPage:
    """Interactive HTML page of attention weights, by layer, head and token.

    The page opens on the first head of the first map. For a decoder, each token is shown with the
    next token, which it predicts.

    The page is self-contained: it needs no server, and its Content-Security-Policy forbids network
    access. Weights are stored in steps of 1/65535, two bytes each before base64. Spaces, line
    breaks and other invisible characters are shown as symbols, and combining marks on a dotted
    circle.

    Args:
        maps: at least one map; the page opens on the first.
        title: title of the page.

    Returns:
        HTML, which a notebook displays; save it as UTF-8 in a file that ends in .html.

    Raises:
        ShapeError: the weights of a map are not `[L, N, T, S]` for its tokens, an axis has size 0,
            or the number of next tokens differs from that of query tokens.
        DataError: there is no map; or weights are not finite or not in [0, 1].

    References:
        Jesse Vig, "A Multiscale Visualization of Attention in the Transformer Model", 2019.

    Example:
        >>> weights = np.full((1, 1, 2, 2), 0.5)
        >>> page = attention_page([AttentionMap("self-attention", weights, ["a", "b"], ["a", "b"])])
        >>> page.startswith("<!doctype html>"), "http://" in page
        (True, False)
    """
    if not maps:
        raise DataError("an attention page must have at least one map, got none; pass one")
    data = json.dumps([_page_data(attention_map) for attention_map in maps], separators=(",", ":"))
    style = _read("attention_page.css")
    script = _read("attention_page.js") + _read("attention_page_use.js")
    parts = {
        "title": html.escape(title).encode("utf-8", "xmlcharrefreplace").decode(),
        "policy": (
            f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
            "base-uri 'none'; form-action 'none'"
        ),
        "style": style,
        # So that no token can close the <script> element that holds the data.
        "data": data.replace("<", "\\u003c"),
        "script": script,
    }
    page = re.sub(r"\{\{(\w+)\}\}", lambda name: parts[name[1]], _read("attention_page.html"))
    return AttentionPage(page)


def _page_data(attention_map: AttentionMap) -> dict[str, Any]:
    """Checks a map, and returns it in the format that the script reads."""
    name, weights, queries, keys, following = attention_map
    argument, remedy = f"the weights of {name!r}", "pass one text of the batch, and a token per row"
    tokens = {"T": len(queries), "S": len(keys)}
    weights = checked(argument, weights, "L N T S", tokens, remedy=remedy).astype(np.float64)
    if following is not None and len(following) != len(queries):
        raise ShapeError(
            f"next_tokens of {name!r} must have one token for each of the {len(queries)} query "
            f"tokens, got {len(following)}; leave them out if nothing is predicted"
        )
    low, high = weights.min(), weights.max()
    if low < 0 or high > 1 + 1e-6:
        raise DataError(
            f"{argument} must be in [0, 1], got {low:.4g} .. {high:.4g}; pass the result of the "
            "softmax"
        )
    return {
        "name": name,
        "layers": weights.shape[0],
        "heads": weights.shape[1],
        "queries": [visible(token) for token in queries],
        "keys": [visible(token) for token in keys],
        "next": None if following is None else [visible(token) for token in following],
        "weights": base64.b64encode(np.round(weights * _MAX_CODE).astype("<u2").tobytes()).decode(),
    }


def _read(name: str) -> str:
    return importlib.resources.files("jaxformer.viz").joinpath(name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    """Hash by which the Content-Security-Policy allows an inline element."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
