"""Documents as tokens, in a store."""

import concurrent.futures
import pathlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from jaxformer.text.corpora.corpus import Corpus
from jaxformer.text.corpora.prepared import prepared_store
from jaxformer.text.sources.records import Row
from jaxformer.text.store.ragged import RaggedArray, TokenStream, item_starts, token_dtype
from jaxformer.text.store.store import Arrays, Record
from jaxformer.text.tables.table import row_size
from jaxformer.text.tokenizers.pieces import groups_of_size
from jaxformer.text.tokenizers.tokenizer import Tokenizer

_LARGEST = 2**25  # bytes of text in a part; encoding it takes 300 MB of memory
_GROUP = 2**21  # characters that one call encodes
_AHEAD = 2  # groups encoded at a time: the library's threads work while arrays are made of another

_Sided = tuple[Row, bool]  # a part of a document, and whether it is for validation


def prepare_documents(
    corpus: Corpus,
    tokenizer: Tokenizer,
    cache_dir: pathlib.Path | None,
    *,
    on_progress: Callable[[int], None] = lambda size: None,
) -> tuple[TokenStream, TokenStream | None]:
    """Encodes a corpus of documents into token files, or maps existing files.

    If a process ends early, in any way, it loses only the part in progress: the next call goes on
    after the last complete one. Of several processes, one prepares, and the others wait.

    Args:
        corpus: the documents.
        tokenizer: tokenizer that encodes them.
        cache_dir: cache folder. The corpus gets a folder in it, named by a hash of text and
            tokenizer. None to keep the tokens in memory.
        on_progress: called with the number of bytes of text done so far.

    Returns:
        The training tokens, and those for validation, if there are any; memory-mapped if they are
        in a folder. The end of text ends documents.

    Raises:
        DataError: a text file has changed.
        StorageError: a token file cannot be written.

    Example:
        >>> import tempfile
        >>> from jaxformer.text import Documents, byte_tokenizer, scan_corpus
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.txt").write_text("some text")
        >>> corpus = scan_corpus(Documents, [folder / "a.txt"], validation_fraction=0)
        >>> train, _ = prepare_documents(corpus, byte_tokenizer(), folder / "cache")
        >>> train.tokens[:4].tolist(), train.num_bytes
        ([115, 111, 109, 101], 9)
    """
    store = prepared_store(
        corpus, lambda parts: _encoded(parts, tokenizer), cache_dir, tokenizer.identity,
        largest=_LARGEST, on_progress=on_progress,
    )  # fmt: skip
    streams = {
        side: TokenStream(
            array.values,
            np.asarray(array.offsets),
            num_bytes=sum(record["bytes"][side] for record in store.records),
            fingerprint=corpus.fingerprint,
        )
        for side, array in store.arrays.items()
        if side == "train" or array.values.size
    }
    return streams["train"], streams.get("validation")


def _encoded(parts: Sequence[_Sided], tokenizer: Tokenizer) -> tuple[Arrays, Record]:
    """The tokens of parts of documents by side, and the bytes of their texts."""
    dtype = token_dtype(tokenizer.vocab_size)
    documents: dict[str, list[list[np.ndarray]]] = {"train": [], "validation": []}
    sizes = dict.fromkeys(documents, 0)
    last = None
    for (row, is_validation), tokens in _tokens(parts, tokenizer):
        side = "validation" if is_validation else "train"
        if row.is_start or side != last:  # a document begins anew on the other side
            documents[side].append([])
        documents[side][-1].append(tokens.astype(dtype))
        sizes[side] += row_size(row)
        last = side
    return {side: _joined(texts, tokenizer) for side, texts in documents.items()}, {"bytes": sizes}


def _tokens(parts: Sequence[_Sided], tokenizer: Tokenizer) -> Iterator[tuple[_Sided, np.ndarray]]:
    """Encodes parts of documents, in order."""

    def encode(group: list[_Sided]) -> list[tuple[_Sided, np.ndarray]]:
        starts = [row.columns[0] for row, _ in group if row.is_start]
        continued = [row.columns[0] for row, _ in group if not row.is_start]
        firsts = iter(tokenizer.encode_documents(starts))
        rests = iter(tokenizer.encode_documents(continued, is_start=False))
        return [(part, next(firsts if part[0].is_start else rests)) for part in group]

    groups = groups_of_size(parts, lambda part: len(part[0].columns[0]), _GROUP)
    with concurrent.futures.ThreadPoolExecutor(_AHEAD) as pool:
        for group in pool.map(encode, groups):
            yield from group


def _joined(documents: Sequence[Sequence[np.ndarray]], tokenizer: Tokenizer) -> RaggedArray:
    """Joins documents, each in parts, with their surrounding tokens; the end of text ends each."""
    special, end = tokenizer.surrounding_tokens, tokenizer.end_of_text
    dtype = token_dtype(tokenizer.vocab_size)
    is_ended = end is None or special.after[-1:] == (end,)
    first = np.array(special.before, dtype)
    last = np.array(special.after if is_ended else (*special.after, end), dtype)
    tokens = [array for parts in documents for array in (first, *parts, last)]
    around = first.size + last.size
    return RaggedArray(
        np.concatenate([first[:0], *tokens]),
        item_starts(sum(map(len, parts)) + around for parts in documents),
    )
