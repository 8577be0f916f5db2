"""SentencePiece's text normalization rules, applied as SentencePiece applies them."""

import functools
import re
import struct

from jaxformer.errors import DataError

_LABEL = (1 << 31) | 0xFF


class Charsmap:
    r"""Rules that rewrite characters, such as NFKC, compiled by SentencePiece.

    At each position of the text, the longest matching rule is applied; its result is not rewritten
    again (Kudo and Richardson, "SentencePiece", 2018). The step `Precompiled` of the `tokenizers`
    library differs: it rewrites whole graphemes of up to five bytes, or single characters. So it
    misses rules for long graphemes, and loses the end of short ones.

    Args:
        data: `precompiled_charsmap` of a SentencePiece model: the size of a trie in bytes, the trie
            (a Darts-clone double array), and the results, each followed by a zero byte.

    Raises:
        DataError: the data is damaged.

    Example:
        >>> units = [0] * 512
        >>> units[0] = 0 << 10  # the root, whose child of a byte is at that index
        >>> units[65] = (64 << 10) | (1 << 8) | 65  # A, at 65, has a result, which 65 ^ 64 says
        >>> units[1] = 1 << 31  # at 0 in the results
        >>> data = struct.pack("<I512I", 2048, *units) + b"a\0"
        >>> Charsmap(data).apply("AHA")
        'aHa'
    """

    def __init__(self, data: bytes) -> None:
        size = struct.unpack("<I", data[:4])[0] if len(data) > 4 else 0
        if not 0 < size <= len(data) - 4 or size % 4:
            raise DataError(
                f"the normalization rules are damaged: their trie has {size} bytes, and there are "
                f"{len(data)}; get the tokenizer's file again"
            )
        self._units = struct.unpack(f"<{size // 4}I", data[4 : 4 + size])
        self._results = data[4 + size :]
        self._rewritten = functools.lru_cache(2**16)(self._rewrite)
        ascii_rules = [chr(c) for c in range(1, 128) if self._longest(bytes([c]), 0)[0]]
        if any(self._goes_on(c) for c in range(1, 128)):
            self._runs = re.compile(r"[\s\S]+")
        else:
            rules = "".join(map(re.escape, ascii_rules))
            self._runs = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]+" + (f"|[{rules}]" if rules else ""))

    def apply(self, text: str) -> str:
        """Rewrites a text; DataError if the rules are damaged."""
        return self._runs.sub(lambda run: self._rewritten(run[0]), text)

    def _rewrite(self, run: str) -> str:
        data, out, at = run.encode(), [], 0
        while at < len(data):
            length, result = self._longest(data, at)
            if not length:  # one character, unchanged
                length = 1 + (data[at] >= 0xC0) + (data[at] >= 0xE0) + (data[at] >= 0xF0)
                result = data[at : at + length]
            out.append(result)
            at += length
        try:
            return b"".join(out).decode()
        except UnicodeDecodeError:
            raise DataError(
                "the normalization rules are damaged: a result is not UTF-8; get the "
                "tokenizer's file again"
            ) from None

    def _longest(self, data: bytes, start: int) -> tuple[int, bytes]:
        """Length in bytes of the longest matching rule, and its result; 0 if none matches."""
        units, found, value = self._units, 0, 0
        node = _offset(units[0])
        for at in range(start, len(data)):
            node ^= data[at]
            if node >= len(units) or units[node] & _LABEL != data[at]:
                break
            unit = units[node]
            node ^= _offset(unit)
            if unit >> 8 & 1:
                found, value = at + 1 - start, self._value(node)
        if not found:
            return 0, b""
        end = self._results.find(b"\0", value)
        if end < 0:
            raise DataError(
                f"the normalization rules are damaged: a result at {value} has no end; get the "
                "tokenizer's file again"
            )
        return found, self._results[value:end]

    def _value(self, node: int) -> int:
        return self._units[node] & 0x7FFFFFFF if node < len(self._units) else len(self._results)

    def _goes_on(self, byte: int) -> bool:
        """Whether a rule starts with this ASCII character and a second one."""
        units = self._units
        node = _offset(units[0]) ^ byte
        if node >= len(units) or units[node] & _LABEL != byte:
            return False
        node ^= _offset(units[node])
        return any(node ^ c < len(units) and units[node ^ c] & _LABEL == c for c in range(1, 128))


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & 1 << 9) >> 6)
