"""The attention viewer as a file: what is in it, what cannot be, and what is refused."""

import base64
import hashlib
import html.parser
import json
import re

import numpy as np
import pytest

from jaxformer.errors import DataError, ShapeError
from jaxformer.viz import AttentionMap, attention_page


def random_weights(*shape, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(shape[-1], 0.3), size=shape[:-1])


def one_map(weights=None, queries=("a", "b"), keys=("c", "d", "e"), name="cross-attention",
            following=None):  # fmt: skip
    if weights is None:
        weights = random_weights(1, 1, len(queries), len(keys))
    return AttentionMap(name, weights, queries, keys, following)


class Elements(html.parser.HTMLParser):
    """Collects the elements of a page: (tag, attributes, text)."""

    def __init__(self, page):
        super().__init__()
        self.all = []
        self.within = False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.all.append([tag, dict(attrs), ""])
        self.within = True

    def handle_endtag(self, tag):
        self.within = False

    def handle_data(self, data):
        if self.within:
            self.all[-1][2] += data

    def of(self, tag):
        return [(attributes, text) for name, attributes, text in self.all if name == tag]


def data_of(page):
    (data,) = [text for attributes, text in Elements(page).of("script") if attributes.get("id")]
    return json.loads(data)


def shown(token):
    return data_of(attention_page([one_map(queries=(token, "b"))]))[0]["queries"][0]


def test_data_has_every_map_with_its_weights():
    weights = random_weights(2, 3, 5, 7)
    queries, keys = "v w x y z".split(), "a b c d e f g".split()
    maps = [one_map(weights, queries, keys), one_map(name="other")]
    first, second = data_of(attention_page(maps))
    assert (first["name"], second["name"]) == ("cross-attention", "other")
    assert (first["layers"], first["heads"]) == (2, 3)
    assert (first["queries"], first["keys"]) == (queries, keys)
    stored = np.frombuffer(base64.b64decode(first["weights"]), "<u2") / 65535
    np.testing.assert_allclose(stored.reshape(2, 3, 5, 7), weights, rtol=0, atol=0.51 / 65535)


def test_page_has_the_tokens_that_come_next_where_there_are_any():
    maps = [one_map(), one_map(following=[" b", "\n"])]
    assert [page_map["next"] for page_map in data_of(attention_page(maps))] == [None, ["␣b", "↵"]]


def test_notebook_shows_the_page_in_a_sandboxed_frame_and_keeps_no_second_copy():
    page = attention_page([one_map(name="<b> & \"'")])
    elements = Elements(page._repr_html_())
    assert [tag for tag, *_ in elements.all] == ["iframe"]
    ((attributes, _),) = elements.of("iframe")
    assert (attributes["srcdoc"], attributes["sandbox"]) == (page, "allow-scripts")
    assert str(page) == page and repr(page) == f"<attention page of {len(page):,} characters>"


def test_policy_allows_exactly_the_style_and_the_script_of_the_page():
    elements = Elements(attention_page([one_map()]))
    ((style_attributes, style),) = elements.of("style")
    (_, (_, script)) = elements.of("script")
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (style, script)
    ]
    (policy,) = [a["content"] for a, _ in elements.of("meta") if "http-equiv" in a]
    assert policy.split("; ") == [
        "default-src 'none'", f"style-src 'sha256-{digests[0]}'",
        f"script-src 'sha256-{digests[1]}'", "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    assert style_attributes == {}


def test_page_names_no_other_file():
    page = attention_page([one_map()])
    assert not re.search(r"\w+://", page)
    for _, attributes, _ in Elements(page).all:
        assert not {"src", "href", "style", "action", "onclick"} & set(attributes)
    assert "url(" not in page and "@import" not in page


@pytest.mark.parametrize(
    "evil",
    ["</script><script>alert(1)</script>", "<!--<script>", "<b>bold</b>", "{{data}}", "\"'&"],
)
def test_what_is_spelt_like_the_page_stays_text(evil):
    page = attention_page(
        [one_map(queries=(evil, "b"), keys=(evil, "b", "c"), name=evil)], title=evil
    )
    plain = attention_page([one_map()], title="plain")
    elements = Elements(page)
    assert [tag for tag, *_ in elements.all] == [tag for tag, *_ in Elements(plain).all]
    assert [text.strip() for tag in ("title", "h1") for _, text in elements.of(tag)] == [evil] * 2
    (data,) = data_of(page)
    assert data["name"] == data["queries"][0] == data["keys"][0] == evil


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (" the", "␣the"),
        ("a  b ", "a␣␣b␣"),
        ("\n", "↵"),
        ("\r\n\t", "⟨U+000D⟩↵⇥"),
        ("ನಮಸ್ಕಾರ", "ನಮಸ್ಕಾರ"),
        ("ಕ್\u200d", "ಕ್\u200d"),  # the joiner shapes its word
        ("\u0cbf", "◌\u0cbf"),
        ("\u0301e", "◌\u0301e"),
        ("😀", "😀"),
        ("\u202eabc", "⟨U+202E⟩abc"),  # would turn round what follows
        ("\u2066a", "⟨U+2066⟩a"),
        ("\x00\x07", "⟨U+0000⟩⟨U+0007⟩"),
        ("\xa0", "⟨U+00A0⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("", "⟨empty⟩"),
        ("<|endoftext|>", "<|endoftext|>"),
    ],
)
def test_tokens_are_shown_so_that_all_of_them_is_seen(token, expected):
    assert shown(token) == expected


def changed(index, value):
    weights = random_weights(2, 3, 2, 3)
    weights[index] = value
    return weights


@pytest.mark.parametrize(
    ("maps", "error", "message"),
    [
        ([], DataError, "at least one map, got none"),
        (
            [one_map(), one_map(np.ones((1, 2, 3)))],
            ShapeError,
            r"weights of 'cross-attention' must be \[L, N, T=2, S=3\], got shape \(1, 2, 3\)",
        ),
        ([one_map(np.ones((1, 1, 3, 2)))], ShapeError, r"T=2, S=3\], got shape \(1, 1, 3, 2\)"),
        ([one_map(np.ones((0, 1, 2, 3)))], ShapeError, "no empty axis"),
        (
            [one_map(following=["b"])],
            ShapeError,
            "next_tokens of 'cross-attention' must have one token for each of the 2 query tokens",
        ),
        ([one_map(changed((1, 2, 1, 2), np.nan))], DataError, "'cross-attention' must be finite"),
        ([one_map(changed((1, 2, 1), [0.9, 0.6, -0.5]))], DataError, r"in \[0, 1\], got -0.5 .. "),
        ([one_map(changed((1, 2, 1), [1.5, 0, 0]))], DataError, r"in \[0, 1\], got .* .. 1.5"),
    ],
)
def test_what_cannot_be_shown_is_refused(maps, error, message):
    with pytest.raises(error, match=message):
        attention_page(maps)
