"""The cache of token streams on disk."""

import contextlib
import hashlib
import itertools
import os
import pathlib
import warnings
import zlib

import numpy as np

from jaxformer.text.batches.windows import TokenStream, build_stream
from jaxformer.text.sources.document_sources import (
    DocumentSource,
    is_token_array,
    read_documents_of,
)
from jaxformer.text.store.array_files import map_array, write_array
from jaxformer.text.tokenizers.tokenizer import Tokenizer

__all__ = ["cached_stream", "default_cache_dir"]


def default_cache_dir() -> pathlib.Path | None:
    """Returns the folder for cached tokens: `$XDG_CACHE_HOME/jaxformer`, else `~/.cache/jaxformer`.

    Returns:
        The folder, which need not exist; None if the user has no home folder either.

    Example:
        >>> default_cache_dir().name
        'jaxformer'
    """
    try:
        home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    except RuntimeError:  # neither HOME nor an entry in the user database
        return None
    return pathlib.Path(home) / "jaxformer"


def cached_stream(
    source: DocumentSource,
    tokenizer: Tokenizer | None,
    cache_dir: pathlib.Path | None,
    *,
    field: str = "text",
) -> TokenStream:
    """`build_stream` with a cache on disk, keyed by documents and tokenizer.

    Any number of processes may call it at once. Damaged files are made again. If there is no cache,
    or it is not writable, you get a warning and the tokens stay in memory. Tokens in one array are
    not copied to the cache.

    Args:
        source: as in `build_stream`.
        tokenizer: as in `build_stream`.
        cache_dir: folder for the files, such as `default_cache_dir()`; created if missing. None for
            no cache.
        field: as in `build_stream`.

    Returns:
        The stream; cached tokens are memory-mapped.

    Raises:
        DataError: as for `build_stream`.

    Example:
        >>> import tempfile
        >>> from jaxformer.text import byte_tokenizer
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cached_stream(["ab"], byte_tokenizer(), pathlib.Path(folder)).tokens.tolist()
        [97, 98]
    """
    if cache_dir is None:
        _warn_of_no_cache("there is no home folder")
    if cache_dir is None or is_token_array(source):
        return build_stream(source, tokenizer, field=field)
    key = _key(source, tokenizer, field)
    if (cached := _read_cache(cache_dir, key)) is not None:
        return cached
    stream = build_stream(source, tokenizer, field=field)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        write_array(cache_dir / f"{key}.tokens.npy", stream.tokens)
        write_array(cache_dir / f"{key}.index.npy", np.append(_checksum(stream), stream.offsets))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path, or a StorageError
        with contextlib.suppress(OSError, ValueError):
            (cache_dir / f"{key}.tokens.npy").unlink()  # useless alone, and the disk is full
        _warn_of_no_cache(f"{cache_dir}: {getattr(error, 'strerror', None) or error}")
        return stream
    # Mapped, as in the next call; in memory if another process has removed the files.
    return _read_cache(cache_dir, key) or stream


def _warn_of_no_cache(reason: str) -> None:
    """Warns the caller of `cached_stream`."""
    warnings.warn(
        "tokens are kept in memory and made again at the next start, since they cannot be cached "
        f"({reason}); set XDG_CACHE_HOME to a writable folder",
        stacklevel=3,
    )


def _key(source: DocumentSource, tokenizer: Tokenizer | None, field: str) -> str:
    """Hashes everything a stream depends on; invalid text ("surrogatepass") is reported later."""
    digest = hashlib.sha256()
    name = "" if tokenizer is None else tokenizer.identity
    for one in itertools.chain((name,), read_documents_of(source, field)):
        if isinstance(one, str):
            data = one.encode(errors="surrogatepass")
        else:
            digest.update(b"token ids")
            data = one.astype(np.int64).tobytes()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _read_cache(cache_dir: pathlib.Path, key: str) -> TokenStream | None:
    """Maps the files of a stream; None if they are missing or damaged."""
    try:
        paths = [cache_dir / f"{key}.{name}.npy" for name in ("tokens", "index")]
        tokens, index = (map_array(path, remedy="encode again") for path in paths)
        stream = TokenStream(tokens, index[1:])
        return stream if index[0] == _checksum(stream) else None
    except Exception:  # a file with any fault is made again
        return None


def _checksum(stream: TokenStream) -> int:
    return zlib.crc32(stream.offsets.data, zlib.crc32(np.asarray(stream.tokens).data))
