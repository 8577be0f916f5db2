import pytest

from jaxformer.errors import CheckpointError
from jaxformer.storage import read_object, shown


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": ' * 100_000, "(?:recursion|Stack overflow)"),
        ("[]", "it must be an object, got "),
        ("", "Expecting value"),
        ("{}{}", "Extra data"),
        (b'{"a": "\xff"}', "can't decode byte 0xff"),
    ],
)
def test_what_is_no_json_object_is_refused_in_one_line(tmp_path, text, reason):
    (tmp_path / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CheckpointError, match=rf"config.json is damaged: .*{reason}") as caught:
        read_object(tmp_path / "config.json")
    assert len(str(caught.value).splitlines()) == 1


def test_byte_order_mark_of_a_file_is_left_out(tmp_path):
    (tmp_path / "config.json").write_text('{"a": 1}', encoding="utf-8-sig")
    assert read_object(tmp_path / "config.json") == {"a": 1}


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
