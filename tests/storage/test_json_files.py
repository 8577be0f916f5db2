import re

import pytest

from jaxformer.errors import CheckpointError
from jaxformer.storage import json_files, parse_object, read_download, shown


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "b": 2, "a": 1}', "the key 'a' occurs twice"),
        ('{"x": [{"y": {"a": 1, "\\u0061": 1}}]}', "the key 'a' occurs twice"),
        ('{"a": NaN}', "its numbers must be finite, got NaN"),
        ('{"a": [-Infinity]}', "its numbers must be finite, got -Infinity"),
        (f'{{"a": {"1" * 21}}}', "at most 64 bits, got 21 digits"),
        (f'{{"a": -{"9" * 50_000}}}', "at most 64 bits, got 50001 digits"),
        ('{"a": "\\ud800"}', "surrogates not allowed"),
        ('{"a": ["\\uDFff"]}', "surrogates not allowed"),
        ('{"\\udc00": 1}', "surrogates not allowed"),
        ('{"a": ' * 100_000, "it is nested too deeply"),
        ('{"a": ' + "[" * 100_000, "it is nested too deeply"),
        ("[]", "must begin with '{', got '['"),
        (" {}", "must begin with '{', got ' '"),
        ("\ufeff{}", "must begin with '{', got '\\ufeff'"),
        ("", "must begin with '{', got ''"),
        ("{", "Expecting property name"),
        ("{}{}", "Extra data"),
        ('{"a": "\n"}', "Invalid control character"),
        ('{"a": 1]', "Expecting ',' delimiter"),
    ],
)
def test_what_is_no_strict_json_is_refused_in_one_line(text, reason):
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        parse_object(text.encode())
    assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 200


def test_file_of_a_download_that_is_too_large_is_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr(json_files, "_MAX_DOWNLOAD", 3)
    (tmp_path / "merges.txt").write_bytes(b"abcd")
    with pytest.raises(
        CheckpointError, match="merges.txt is damaged: .* at most 3 bytes, .* again"
    ):
        read_download(tmp_path / "merges.txt")


def test_what_is_not_utf_8_is_refused():
    with pytest.raises(ValueError, match="can't decode byte 0xff"):
        parse_object(b'{"a": "\xff"}')


def test_byte_order_mark_of_a_file_is_left_out(tmp_path):
    (tmp_path / "config.json").write_text('{"a": 1}', encoding="utf-8-sig")
    assert json_files.read_object(tmp_path / "config.json") == {"a": 1}


def test_strict_json_may_have_pairs_of_surrogates_and_64_bits():
    text = b'{"\\ud83d\\ude00": "\\ud83d\\ude00", "n": [18446744073709551615, 1.5, null]} \n\t'
    assert parse_object(text) == {"😀": "😀", "n": [2**64 - 1, 1.5, None]}


@pytest.mark.parametrize(
    "value",
    [
        "line\nline\x1b[31m\u202e",
        "a" * 10**6,
        {"a": {"b": {"c": [1] * 10**6}}},
        [[[[[[]]]]]] * 99,
        ["\n" * 99] * 99,
    ],
)
def test_shown_values_are_short_and_on_one_line(value):
    text = shown(value)
    assert len(text) <= 160 and text.isprintable()
