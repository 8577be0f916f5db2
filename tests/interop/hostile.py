"""Safetensors files that are refused, and parts of the error messages."""

import json

from tests.interop.crafted import craft, entry

DATA = bytes(range(16))
PAIR = {"a": entry(), "b": entry("I16", (2, 2), (8, 16))}


def one(*args, **others):
    return craft({"a": entry(*args, **others)}, DATA[:8])


HOSTILE = {
    "nothing": (b"", "it is empty"),
    "7 bytes": (b"\0" * 7, "got 0 bytes in a file of 7"),
    "no header": (b"\0" * 8, "got 0 bytes in a file of 8"),
    "length 1": (craft(b"{"), "got 1 bytes"),
    "length beyond the file": (craft(PAIR, DATA, 1000), "got 1,000 bytes in a file of"),
    "length 2**62": (craft(PAIR, DATA, 2**62), "got 4,611,686,018,427,387,904 bytes"),
    "length 2**64 - 1": (craft(PAIR, DATA, 2**64 - 1), "must have 2 to 100,000,000 bytes"),
    "length one short": (craft(PAIR, DATA, len(craft(PAIR)) - 9), "its header is not valid JSON"),
    "web page": (b"<!DOCTYPE html><html>", "must have 2 to 100,000,000 bytes"),
    "array": (craft(b"[]"), "must begin with '{'"),
    "number": (craft(b"12"), "must begin with '{'"),
    "space first": (craft(b" {}"), "must begin with '{'"),
    "no JSON": (craft(b"{'a': 1}"), "its header is not valid JSON"),
    "no UTF-8": (craft(b'{"\xff": 1}'), "can't decode byte 0xff"),
    "zeros behind": (craft(b"{}\0\0\0\0\0\0"), "Extra data"),
    "nested": (craft(b'{"a": ' + b"[" * 100_000), "nested too deeply"),
    "equal names": (
        craft(b'{"a": %s, "a": %s}' % ((json.dumps(entry()).encode(),) * 2), DATA[:8]),
        "the key 'a' occurs twice",
    ),
    "equal dtypes": (craft(b'{"a": {"dtype": "F32", "dtype": "I8"}}'), "'dtype' occurs twice"),
    "equal metadata": (craft(b'{"__metadata__": {"b": "", "b": ""}}'), "'b' occurs twice"),
    "two metadata": (craft(b'{"__metadata__": {}, "__metadata__": {}}'), "occurs twice"),
    "huge integer": (craft(b'{"a": %s}' % (b"9" * 5000)), "at most 64 bits"),
    "NaN": (craft(b'{"a": NaN}'), "its numbers must be finite"),
    "half a surrogate pair": (craft(b'{"\\ud800": 1}'), "surrogates not allowed"),
    "name is empty": (craft({"": entry()}, DATA[:8]), "a tensor without a name"),
    "entry is a list": (craft({"a": []}), "dtype, shape and data_offsets must be the only keys"),
    "no dtype": (craft({"a": {"shape": [], "data_offsets": [0, 0]}}), "must be the only keys"),
    "no shape": (craft({"a": {"dtype": "I8", "data_offsets": [0, 0]}}), "must be the only keys"),
    "no offsets": (craft({"a": {"dtype": "I8", "shape": []}}), "must be the only keys"),
    "strides": (one(strides=[1]), "must be the only keys of tensor 'a'"),
    "unknown dtype": (one("F33"), "dtype of tensor 'a' must be one of BOOL, .*, got 'F33'"),
    "parts of bytes": (one("F4", (16,)), "must be one of BOOL, .*, got 'F4'; convert"),
    "dtype is a list": (one(["F32"]), r"must be one of BOOL, .*, got \['F32'\]"),
    "dtype in small letters": (one("f32"), "must be one of BOOL, .*, got 'f32'"),
    "shape is a number": (one("F32", 2), "the shape must be at most 64 sizes"),
    "shape is null": (one("F32", None), "the shape must be at most 64 sizes"),
    "size -1": (one("F32", [-1, -2]), "the shape must be at most 64 sizes"),
    "size is true": (one("F32", [True, 2]), "the shape must be at most 64 sizes"),
    "size 2.0": (one("F32", [2.0]), "the shape must be at most 64 sizes"),
    "size is a text": (one("F32", ["2"]), "the shape must be at most 64 sizes"),
    "size 2**63": (one("F32", [2**63]), r"fewer than 2\*\*63"),
    "size 2**63 by nothing": (one("F32", [0, 2**63], (0, 0)), r"fewer than 2\*\*63"),
    "65 axes": (one("F32", [1] * 65), "the shape must be at most 64 sizes"),
    "100,000 axes": (one("F32", ["\n" * 99] * 10**5), "the shape must be at most 64 sizes"),
    "2**64 numbers": (one("F32", [2**32, 2**32]), r"fewer than 2\*\*63"),
    "2**64 + 2 numbers": (one("F32", [2, 2**63 - 1, 2]), r"fewer than 2\*\*63"),
    "2**63 bytes": (one("F64", [2**60]), r"fewer than 2\*\*63"),
    "2**64 numbers by nothing": (one("U8", [0, 2**32, 2**32], (0, 0)), r"fewer than 2\*\*63"),
    "one offset": (one(offsets=[8]), "data_offsets must be 2 integers"),
    "three offsets": (one(offsets=[0, 8, 8]), "data_offsets must be 2 integers"),
    "offsets are texts": (one(offsets=["0", "8"]), "data_offsets must be 2 integers"),
    "offsets are floats": (one(offsets=[0.0, 8.0]), "data_offsets must be 2 integers"),
    "offset is true": (one("U8", [1], [False, True]), "data_offsets must be 2 integers"),
    "offset -8": (
        one(offsets=[-8, 0]),
        r"'a' must be \[0, 8\], without gap or overlap, got \[-8, 0\]",
    ),
    "offset 2**64": (
        one(offsets=[2**64 - 8, 2**64]),
        r"must be \[0, 8\], without gap or overlap, got \[184",
    ),
    "offsets swapped": (one(offsets=[8, 0]), r"'a' must be \[0, 8\], .*, got \[8, 0\]"),
    "too few bytes": (one("F32", [3]), r"'a' must be \[0, 12\], .*, got \[0, 8\]"),
    "too many bytes": (one("F32", [1]), r"'a' must be \[0, 4\], .*, got \[0, 8\]"),
    "beyond the file": (one("F32", [4], [0, 16]), "its tensors must fill it, got .* of"),
    "2**62 bytes": (one("U8", [2**62], [0, 2**62]), "its tensors must fill it, got 4,6"),
    "gap before": (one(offsets=[8, 16]), r"'a' must be \[0, 8\], .*, got \[8, 16\]"),
    "gap between": (
        craft({"a": entry(), "b": entry(offsets=[12, 20])}, DATA + DATA[:4]),
        r"'b' must be \[8, 16\], without gap or overlap, got \[12, 20\]",
    ),
    "gap behind": (craft({"a": entry()}, DATA), "its tensors must fill it, got"),
    "data without tensors": (craft({}, DATA), "its tensors must fill it, got 10 of 26"),
    "overlap": (
        craft({"a": entry(), "b": entry(offsets=[4, 12])}, DATA[:12]),
        r"'b' must be \[8, 16\], .* \[4, 12\]",
    ),
    "same place": (
        craft({"a": entry(), "b": entry()}, DATA[:8]),
        r"must be \[8, 16\], .* \[0, 8\]",
    ),
    "nothing in a tensor": (
        craft({"a": entry(), "b": entry("F32", [0], [4, 4])}, DATA[:8]),
        r"tensor 'b' must be \[8, 8\], without gap or overlap, got \[4, 4\]",
    ),
    "metadata is a list": (craft({"__metadata__": []}), "__metadata__ must map names to texts"),
    "metadata is null": (craft({"__metadata__": None}), "__metadata__ must map names to texts"),
    "metadata has a number": (craft({"__metadata__": {"a": 1}}), "__metadata__ must map names"),
    "metadata is deep": (craft({"__metadata__": {"a": {"b": "c"}}}), "__metadata__ must map names"),
    "metadata is a tensor": (craft({"__metadata__": entry()}, DATA[:8]), "must map names to texts"),
    "name of many lines": (craft({"\n\x1b" * 10**5: entry("?")}, DATA[:8]), "must be one of BOOL"),
}
