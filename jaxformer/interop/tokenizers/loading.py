"""Loading of the tokenizers of Hugging Face folders."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import tokenizers

from jaxformer.errors import ConfigError
from jaxformer.interop.tokenizers.sentencepiece_kinds import (
    has_languages,
    language_name,
    language_names,
    load_fairseq,
    load_llama,
    load_m2m_100,
    load_marian,
    load_pegasus,
    load_t5,
    set_language_token,
)
from jaxformer.interop.tokenizers.settings import TokenizerSettings, read_settings
from jaxformer.interop.tokenizers.word_vocabularies import load_byte_pairs, load_word_pieces
from jaxformer.storage import some
from jaxformer.text import Tokenizer, TokenRoles

__all__ = ["Tokenizers", "load_tokenizers"]

_JSON = "tokenizer.json"
_KINDS = {
    "bart": "BartTokenizer", "bert": "BertTokenizer", "camembert": "CamembertTokenizer",
    "distilbert": "BertTokenizer", "electra": "BertTokenizer", "gemma": "GemmaTokenizer",
    "mbart": "MBartTokenizer",
    "mt5": "T5Tokenizer", "pegasus": "PegasusTokenizer", "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "qwen3_moe": "Qwen2Tokenizer", "roberta": "RobertaTokenizer", "t5": "T5Tokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
}  # fmt: skip


class Tokenizers(NamedTuple):
    """Tokenizers of a model's input and output.

    Args:
        source: tokenizer of the input.
        target: tokenizer of the generated text; the same object if there is only one.
    """

    source: Tokenizer
    target: Tokenizer


class _Loaded(NamedTuple):
    source: tokenizers.Tokenizer
    target: tokenizers.Tokenizer | None = None


def load_tokenizers(
    folder: pathlib.Path,
    model_type: str,
    *,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Tokenizers | None:
    """Loads the tokenizers of a Hugging Face folder, without transformers or sentencepiece.

    It uses the first of these files that it can read: `tokenizer.json`; `source.spm`, `target.spm`
    and `vocab.json` (Marian); `spiece.model` (T5, Pegasus); `tokenizer.model` (Llama, Mistral,
    Gemma); `sentencepiece.bpe.model` (mBART, NLLB, XLM-RoBERTa; M2M-100, with `vocab.json`);
    `vocab.json` and `merges.txt` (GPT-2, OPT, RoBERTa, BART, Qwen); `vocab.txt` (BERT, DistilBERT).
    Special tokens may also be in `tokenizer_config.json`, `special_tokens_map.json` and
    `added_tokens.json`.

    Args:
        folder: folder of the model.
        model_type: family of the model, such as "marian".
        source_language: source language of a multilingual translator, by the model's own name, such
            as "eng_Latn" (NLLB), "en" (M2M-100) or "en_XX" (mBART); default: the folder's.
        target_language: target language, likewise.

    Returns:
        The tokenizers; None if the folder has none of these files. Their `roles` name the
        end-of-text and mask tokens, and enable the special tokens around texts.

    Raises:
        CheckpointError: a file is damaged or of an unknown kind, and no other file can be read.
        ConfigError: a setting of a SentencePiece model is not supported, or the model does not have
            a language.
        DataError: `tokenizer.json` cannot be used.

    Example:
        >>> import tempfile
        >>> from jaxformer.text import byte_tokenizer
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> print(load_tokenizers(folder, "gpt2"))
        None
        >>> byte_tokenizer().save(folder / "tokenizer.json")
        >>> load_tokenizers(folder, "gpt2").target.encode("a")
        array([97], dtype=int32)
    """
    settings = read_settings(folder)
    kind = _kind(folder, model_type, settings)
    languages = {"src_lang": source_language, "tgt_lang": target_language}
    chosen = {name: value for name, value in languages.items() if value is not None}
    settings = dataclasses.replace(settings, values={**settings.values, **chosen})
    errors: list[ValueError] = []
    for load in _candidates(folder, kind, settings):
        try:
            made = load()
            break
        except ValueError as error:
            errors.append(error)
    else:
        if errors:
            raise errors[0]
        return None
    target = made.target
    is_json = (folder / _JSON).exists()
    language = None
    if chosen and not has_languages(kind):
        raise ConfigError(
            "a language can only be chosen for a multilingual model, got "
            f"{', '.join(chosen.values())} for {folder}, whose tokenizer is a {kind}; leave it out"
        )
    for one in chosen.values():
        if made.source.token_to_id(language_name(kind, one)) is None:
            names = language_names(made.source)
            near = [name for name in names if name.startswith(one)] or names
            raise ConfigError(
                f"a language must be one of the model's, such as {some(near)}, got {one!r}"
            )
    # tokenizer.json has the special tokens around a text, but these classes set them themselves.
    if not is_json or chosen or settings.text("tokenizer_class") in (kind, f"{kind}Fast"):
        language = set_language_token(made.source, kind, settings, "src")
    if language is not None and settings.text("tgt_lang") not in (None, language):
        target = tokenizers.Tokenizer.from_str(made.source.to_str())
        set_language_token(target, kind, settings, "tgt")
    end = settings.names.get("eos") or (None if is_json else _default_end(made.source))
    roles = TokenRoles(
        end_of_text=TokenRoles.end_of_text if end is None else end,
        mask=settings.names.get("mask", _mask(made.source)),
        surrounded=True,
    )
    source = Tokenizer(made.source, roles)
    return Tokenizers(source, source if target is None else Tokenizer(target, roles))


def _kind(folder: pathlib.Path, model_type: str, settings: TokenizerSettings) -> str:
    """Name of the tokenizer's class in transformers, without "Fast"."""
    if (name := settings.text("tokenizer_class")) is not None:
        name = name.removesuffix("Fast")
        if name not in ("PreTrainedTokenizer", "TokenizersBackend"):
            return name
    if model_type == "m2m_100":
        return "M2M100Tokenizer" if (folder / "vocab.json").exists() else "NllbTokenizer"
    return _KINDS.get(model_type, "GPT2Tokenizer")


def _candidates(
    folder: pathlib.Path, kind: str, settings: TokenizerSettings
) -> Iterator[Callable[[], _Loaded]]:
    """Functions that load the existing files, in order of precedence."""

    def there(*names: str) -> bool:
        return all((folder / name).exists() for name in names)

    if there(_JSON):
        yield lambda: _Loaded(_read_json(folder / _JSON))
    if there("source.spm"):
        yield lambda: _marian(folder, settings)
    if there("spiece.model"):
        load_pieces = load_pegasus if kind == "PegasusTokenizer" else load_t5
        yield lambda: _Loaded(load_pieces(folder / "spiece.model", settings))
    if there("tokenizer.model"):
        yield lambda: _Loaded(load_llama(folder / "tokenizer.model", settings))
    if there(name := "sentencepiece.bpe.model"):
        if kind == "M2M100Tokenizer":
            yield lambda: _Loaded(load_m2m_100(folder / name, folder / "vocab.json", settings))
        else:
            yield lambda: _Loaded(load_fairseq(folder / name, kind, settings))
    if there("merges.txt"):
        yield lambda: _Loaded(load_byte_pairs(folder, kind, settings))
    if there("vocab.txt"):
        yield lambda: _Loaded(load_word_pieces(folder, settings))


def _marian(folder: pathlib.Path, settings: TokenizerSettings) -> _Loaded:
    vocab = folder / "vocab.json"
    separate = settings.flag("separate_vocabs", False)
    return _Loaded(
        load_marian(folder / "source.spm", vocab, settings),
        load_marian(
            folder / "target.spm", folder / "target_vocab.json" if separate else vocab, settings
        ),
    )


def _read_json(path: pathlib.Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(Tokenizer.load(path).to_json())


def _default_end(made: tokenizers.Tokenizer) -> str | None:
    return next((name for name in ("</s>", "<eos>") if made.token_to_id(name) is not None), None)


def _mask(made: tokenizers.Tokenizer) -> str:
    """Name of the mask token if no file states it."""
    names = ("[MASK]", "<mask>")
    found = next((name for name in names if made.token_to_id(name) is not None), None)
    return TokenRoles.mask if found is None else found
