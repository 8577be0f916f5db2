"""The attention viewer: one HTML file with the attention weights of every layer and head."""

import base64
import hashlib
import html
import importlib.resources
import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxformer.errors import DataError, ShapeError
from jaxformer.functional.shapes import check_axes
from jaxformer.models import AttentionMap

__all__ = ["attention_page"]

_MAX_CODE = 2**16 - 1  # weights are stored as 16-bit integers, of which this stands for 1
_SUM_TOLERANCE = 0.01  # weights in bfloat16 do not sum to 1 more exactly
_BYTES = re.compile(r"(⟨[0-9A-F]{2}(?: [0-9A-F]{2})*⟩)")  # as a tokenizer shows parts of characters
_SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}
_DIRECTIONS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def attention_page(maps: Sequence[AttentionMap], *, title: str = "Attention") -> str:
    """Interactive HTML page of attention weights, by layer, head and token.

    The page is self-contained: it needs no server, and its Content-Security-Policy forbids the
    network. Weights are stored in steps of 1/65535, two bytes each before base64. Spaces, line
    breaks and other invisible characters are shown by signs, and a combining mark on a dotted
    circle.

    Args:
        maps: at least one; the page opens with the first.
        title: title of the page.

    Returns:
        HTML; save it as UTF-8 in a file that ends in .html.

    Raises:
        ShapeError: weights are not `[L, N, T, S]` of the tokens, or an axis has size 0.
        DataError: there is no map; or weights are not finite, not in [0, 1], or sum to neither 1
            nor 0 over the keys.

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
    style, script = _read("attention_page.css"), _read("attention_page.js")
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
    return re.sub(r"\{\{(\w+)\}\}", lambda name: parts[name[1]], _read("attention_page.html"))


def _page_data(attention_map: AttentionMap) -> dict[str, Any]:
    """Checks a map, and returns it in the form that the script reads."""
    name, queries, keys = attention_map.name, attention_map.query_tokens, attention_map.key_tokens
    weights, what = np.asarray(attention_map.weights), f"the weights of {name!r}"
    tokens = {"T": len(queries), "S": len(keys)}
    remedy = "pass one text of the batch, and a token for every query and key"
    sizes = check_axes(what, weights, "L N T S", tokens, remedy=remedy)
    if 0 in sizes.values():
        raise ShapeError(f"{what} must have no axis of size 0, got shape {weights.shape}")
    weights = weights.astype(np.float64)
    if not np.isfinite(weights).all():
        raise DataError(f"{what} must be finite, got NaN or infinity; the model has diverged")
    low, high = weights.min(), weights.max()
    if low < 0 or high > 1 + 1e-6:
        raise DataError(
            f"{what} must be in [0, 1], got {low:.4g} .. {high:.4g}; pass what the softmax returns"
        )
    sums = weights.sum(axis=-1)
    wrong = np.minimum(abs(sums - 1), sums) > _SUM_TOLERANCE
    if wrong.any():
        layer, head, query = np.argwhere(wrong)[0]
        raise DataError(
            f"{what} must sum to 1, or to 0, over the keys, got {sums[layer, head, query]:.4g} in "
            f"layer {layer}, head {head}, query {query}; cut padding off queries and keys alike"
        )
    return {
        "name": name,
        "layers": sizes["L"],
        "heads": sizes["N"],
        "queries": [_visible(token) for token in queries],
        "keys": [_visible(token) for token in keys],
        "weights": base64.b64encode(np.round(weights * _MAX_CODE).astype("<u2").tobytes()).decode(),
    }


def _visible(token: str) -> str:
    """Makes a token visible: invisible characters as signs, no effect on the text around it."""
    parts = _BYTES.split(token)
    parts[::2] = ["".join(map(_sign, part)) for part in parts[::2]]
    shown = "".join(parts)
    if all(unicodedata.category(letter) == "Cf" for letter in token):
        shown = "".join(f"⟨U+{ord(letter):04X}⟩" for letter in token) or "⟨empty⟩"
    return f"◌{shown}" if unicodedata.category(shown[0]).startswith("M") else shown


def _sign(letter: str) -> str:
    """Sign of a space or line break; code of a control, separator or direction character."""
    if letter in _SIGNS:
        return _SIGNS[letter]
    invisible = unicodedata.category(letter) in ("Cc", "Cs", "Zs", "Zl", "Zp")
    if invisible or unicodedata.bidirectional(letter) in _DIRECTIONS:
        return f"⟨U+{ord(letter):04X}⟩"
    return letter


def _read(name: str) -> str:
    return importlib.resources.files("jaxformer.viz").joinpath(name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    """Hash by which the Content-Security-Policy allows an inline element."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
