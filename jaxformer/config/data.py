"""Configs of the data: its source, mixtures, synthetic tasks, and the tokenizer."""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from jaxformer.config.checks import BetweenZeroAndOne, Config, PositiveFloat, PositiveInt, within
from jaxformer.storage import in_bucket

Yields = Literal["stream", "conversations", "pairs", "labelled"]


SOURCES: dict[str, tuple[Yields, ...]] = {
    "python": ("stream",),
    "files": ("stream",),
    "tokens": ("stream",),
    "conversations": ("conversations",),
    "pairs": ("pairs",),
    "labelled": ("labelled",),
    "phrasebook": ("pairs", "labelled", "conversations"),
    "copy": ("pairs",),
    "reverse": ("pairs",),
    "sort": ("pairs",),
}
"""What each data source yields; of several, the model's architecture decides."""

_FILES = ("files", "tokens", "conversations", "pairs", "labelled")

READERS = {
    "paths": _FILES,
    "validation_paths": ("python", *_FILES),
    "validation_fraction": ("python", *_FILES),
    "field": ("files",),
    "cache": ("python", *_FILES),
    "packing": ("python", "files", "tokens"),
    "synthetic": ("copy", "reverse", "sort"),
    "mixture": ("files",),
}
"""Keys that only some sources read, and those sources."""

if TYPE_CHECKING:
    SourceName = str
else:  # type checkers accept only a Literal that is spelled out
    SourceName = Literal[tuple(SOURCES)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticConfig(Config):
    """Synthetic tasks: copying, reversing or sorting sequences of symbols.

    Args:
        num_symbols: number of different symbols.
        min_len: length of the shortest sequences, in symbols.
        max_len: length of the longest sequences, in symbols.
        num_pairs: number of training sequences.
        num_validation: number of validation sequences, none of which is in the training data.
    """

    num_symbols: PositiveInt = 20
    min_len: PositiveInt = 2
    max_len: PositiveInt = 10
    num_pairs: PositiveInt = 20_000
    num_validation: PositiveInt = 500

    def _mistakes(self) -> Iterator[str]:
        if self.min_len > self.max_len:
            yield f"min_len must be at most max_len, {self.got('min_len', 'max_len')}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixtureSourceConfig(Config):
    """One source of a mixture: its files and their weight.

    Args:
        name: name of the source in reports and metrics.
        paths: files or glob patterns of the source, in the formats of data.paths for "files".
        weight: weight of the source; its share of the training sequences is its weight divided by
            the sum of all weights.
        field: name of the JSON key, or the Parquet or Arrow column, that holds the text.
    """

    name: str
    paths: tuple[str, ...]
    weight: PositiveFloat
    field: str = "text"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(Config):
    """Data source, validation split, and how text is cut into sequences of tokens.

    Args:
        source: kind of data. Text, for a decoder or for an encoder that predicts masked
            tokens: "python", the documentation that ships with Python; "files", text from paths;
            or "tokens", token ids from paths. Conversations, for a decoder that
            answers: "conversations", from paths; or "phrasebook", questions about translations.
            Pairs, for an encoder-decoder: "pairs", from paths; "phrasebook", translations; or the
            synthetic tasks "copy", "reverse" and "sort". Labeled texts, for an encoder that
            classifies: "labelled" (spelled with two l's), from paths; or "phrasebook", phrases and
            their topics. The phrasebook is the English-Kannada one in this package. If a config
            file has paths but no source, the source is "pairs" for an encoder-decoder, "labelled"
            for an encoder with training.batch_tokens, and "files" otherwise.
        paths: files or glob patterns of the data. "files": UTF-8 text, one document per file; JSON
            Lines (.jsonl, .json), one per line; Parquet or Arrow (.parquet, .arrow), one per row;
            or the folder of a Hugging Face dataset from save_to_disk. "tokens": token ids one after
            the other, in .bin files of nanoGPT or llm.c, or in one-dimensional .npy arrays of
            integers. "conversations": JSON Lines or Parquet, where each line or row has messages,
            objects with role and content; messages of the role assistant are answers. "pairs": one
            file of source, tab, target per line; or a file of sources and one of targets, line by
            line. "labelled": text, tab, label per line. Text files whose names end in .gz, .bz2,
            or .xz (or .zst) are decompressed. All but token ids may be streamed: from data sets at
            the Hugging Face Hub, such as `hf://datasets/OWNER/NAME@REVISION/data/*.parquet`, and
            from buckets, such as `gs://bucket/corpus/*.jsonl` (needs `pip install
            "jaxformer[gcs]"`).
        field: name, for "files", of the JSON key, or the Parquet or Arrow column, that holds the
            text.
        validation_fraction: fraction of the data used for validation, between 0 and 1; not used
            with validation_paths. Documents, rows and parts of at most 128 KiB of text files are
            ordered by a hash of their text, and the first ones are used for validation. The
            fraction is of the bytes for "files" and "python" (one text is cut to match it), and of
            the rows for "pairs", "labelled" and "conversations".
        validation_paths: files or glob patterns of validation data, in the formats of paths; if
            empty, validation_fraction of the data is used. "tokens" need them.
        template: how conversations become tokens: "chatml", with the special tokens `<|im_start|>`
            and `<|im_end|>` around each message; or "plain", with headings of ordinary text, for a
            tokenizer without these tokens.
        packing: how text is cut into sequences: "windows" cuts the stream of all documents into
            sequences of max_len tokens; "documents" does so too, but tokens attend only to their
            own document, and positions restart at 0 in each.
        cache: folder where tokenized text and the results of scanning files are kept, for later
            runs on the same data, on this machine; $XDG_CACHE_HOME/jaxformer, or
            else ~/.cache/jaxformer, if not set.
        mask_rate: fraction of the tokens of a text that an encoder has to predict, between 0 and 1.
        num_buckets: number of lengths that batches of pairs and labeled texts are padded to, 1
            to 8. Training compiles once per length: with fewer lengths, training starts sooner;
            with more, there is less padding.
        synthetic: settings of the synthetic tasks "copy", "reverse" and "sort".
        mixture: several sources in place of paths, for "files". Each has its own weight, and epochs
            are counted per source.
    """

    source: SourceName = "files"
    paths: tuple[str, ...] = ()
    field: str = "text"
    validation_fraction: BetweenZeroAndOne = 0.1
    validation_paths: tuple[str, ...] = ()
    cache: str | None = None
    template: Literal["chatml", "plain"] = "chatml"
    packing: Literal["windows", "documents"] = "windows"
    mask_rate: BetweenZeroAndOne = 0.15
    num_buckets: Annotated[int, within(1, 8)] = 8
    synthetic: SyntheticConfig = SyntheticConfig()
    mixture: tuple[MixtureSourceConfig, ...] = ()

    ONLY_FOR: ClassVar = {(name, "source"): readers for name, readers in READERS.items()}

    def _mistakes(self) -> Iterator[str]:
        if self.cache is not None and in_bucket(self.cache):
            yield (
                "data.cache must be a folder on this machine, since its files are memory-mapped, "
                f"{self.got('cache')}; name one on a disk"
            )
        names = [source.name for source in self.mixture]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield (
                f"sources of data.mixture must have different names, got {name!r} "
                f"{names.count(name)} times; rename one"
            )
        for name in ("paths", "validation_paths", "field"):
            if self.mixture and self.sets(name):
                yield (
                    f"data.{name} cannot be set together with data.mixture, {self.got(name)}; "
                    "remove it: each source has its own paths and field"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig(Config):
    """Tokenizer: how text becomes token ids.

    Args:
        kind: kind of tokenizer: "byte", one id per byte; "character", "word" or byte-level "bpe",
            made from the training text; "file", an existing file; or "pretrained", the tokenizer of
            init_from.
        path: path, for "file", of a tokenizer.json in the format of the Hugging Face `tokenizers`
            library.
        end_of_text: end-of-text token, for "file", such as "</s>"; `<|endoftext|>`, as in GPT-2, if
            not set.
        vocab_size: largest number of token ids, including special tokens, for "bpe" (at least 257)
            and "word", which keeps the most frequent words; if not set, 2,048 for "bpe" and no
            limit for "word".
        joint: whether source and target of a translation share one vocabulary; if false, each has
            its own, of at most vocab_size ids.
    """

    kind: Literal["character", "byte", "word", "bpe", "file", "pretrained"] = "bpe"
    path: str | None = None
    end_of_text: str | None = None
    vocab_size: PositiveInt | None = None
    joint: bool = True

    # An existing file is shared by source and target.
    ONLY_FOR: ClassVar = {
        ("path", "kind"): ["file"],
        ("end_of_text", "kind"): ["file"],
        ("vocab_size", "kind"): ["word", "bpe"],
        ("joint", "kind"): ["character", "byte", "word", "bpe", "pretrained"],
    }

    def _mistakes(self) -> Iterator[str]:
        if self.kind == "bpe" and self.vocab_size is not None and self.vocab_size < 257:
            yield (
                "vocab_size of a byte-level BPE must be at least 257 (256 bytes and the end of "
                f"text), {self.got('vocab_size')}"
            )
        if self.kind == "file" and self.path is None:
            yield "tokenizer.kind 'file' needs tokenizer.path, for example 'gpt2/tokenizer.json'"

    @property
    def most_tokens(self) -> int | None:
        """Largest number of ids of a tokenizer that is trained, with the default filled in."""
        return 2048 if self.kind == "bpe" and self.vocab_size is None else self.vocab_size
