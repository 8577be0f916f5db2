"""Loading of the tokenizers of Hugging Face folders."""

import dataclasses
import pathlib
from collections.abc import Callable
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
    load_marian_pair,
    load_pegasus,
    load_t5,
    set_language_token,
)
from jaxformer.interop.tokenizers.settings import TokenizerSettings, read_settings
from jaxformer.interop.tokenizers.tokenizer_json import load_tokenizer_json
from jaxformer.interop.tokenizers.word_vocabularies import load_byte_pairs, load_word_pieces
from jaxformer.storage import some
from jaxformer.text import Tokenizer, TokenRoles

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

# Model types for which transformers 5 takes tokenizer.json as it is, whatever class is named,
_AS_IT_IS = ("mistral", "mixtral", "phi3", "olmo2", "olmo3", "granite", "modernbert", "umt5")
# and others whose folder may name no class.
_JSON_KINDS = _KINDS | dict.fromkeys(
    ("gpt2", "opt", "starcoder2", "gptj", "phi"), "GPT2Tokenizer"
) | dict.fromkeys(("gpt_neox", "olmo"), "GPTNeoXTokenizer")  # fmt: skip


class Tokenizers(NamedTuple):
    """Tokenizers of a model's input and output.

    Args:
        source: tokenizer of the input.
        target: tokenizer of the generated text; the same object if there is only one.
    """

    source: Tokenizer
    target: Tokenizer


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
    made = _load(folder, kind, _json_kind(model_type, settings), settings)
    if made is None:
        return None
    first, target = made[0], made[-1]
    _check_languages(folder, kind, first, list(chosen.values()))
    is_json, language = (folder / _JSON).exists(), None
    # tokenizer.json has the special tokens around a text, but these classes set them themselves.
    if not is_json or chosen or settings.text("tokenizer_class") in (kind, f"{kind}Fast"):
        language = set_language_token(first, kind, settings, "src")
    if language is not None and settings.text("tgt_lang") not in (None, language):
        target = tokenizers.Tokenizer.from_str(first.to_str())
        set_language_token(target, kind, settings, "tgt")
    end = settings.names.get("eos") or (None if is_json else _first(first, "</s>", "<eos>"))
    mask = settings.names.get("mask", _first(first, "[MASK]", "<mask>"))
    roles = TokenRoles(
        end_of_text=TokenRoles.end_of_text if end is None else end,
        mask=TokenRoles.mask if mask is None else mask,
        surrounded=True,
    )
    source = Tokenizer(first, roles)
    return Tokenizers(source, source if target is first else Tokenizer(target, roles))


def _check_languages(
    folder: pathlib.Path, kind: str, made: tokenizers.Tokenizer, chosen: list[str]
) -> None:
    """Raises ConfigError for a language that the tokenizer does not have."""
    if chosen and not has_languages(kind):
        raise ConfigError(
            "a language can only be chosen for a multilingual model, got "
            f"{', '.join(chosen)} for {folder}, whose tokenizer is a {kind}; leave it out"
        )
    for one in chosen:
        if made.token_to_id(language_name(kind, one)) is None:
            names = language_names(made)
            near = [name for name in names if name.startswith(one)] or names
            raise ConfigError(
                f"a language must be one of the model's, such as {some(near)}, got {one!r}"
            )


def _kind(folder: pathlib.Path, model_type: str, settings: TokenizerSettings) -> str:
    """Name of the tokenizer's class in transformers, without "Fast"."""
    if (name := settings.text("tokenizer_class")) is not None:
        name = name.removesuffix("Fast")
        if name not in ("PreTrainedTokenizer", "TokenizersBackend"):
            return name
    if model_type == "m2m_100":
        return "M2M100Tokenizer" if (folder / "vocab.json").exists() else "NllbTokenizer"
    return _KINDS.get(model_type, "GPT2Tokenizer")


def _json_kind(model_type: str, settings: TokenizerSettings) -> str | None:
    """Name of the class in transformers 5 that reads tokenizer.json; None if it takes it as is."""
    name = (settings.text("tokenizer_class") or "").removesuffix("Fast")
    if model_type in _AS_IT_IS or name in ("PreTrainedTokenizer", "TokenizersBackend"):
        return None
    return name or _JSON_KINDS.get(model_type)


def _load(
    folder: pathlib.Path, kind: str, json_kind: str | None, settings: TokenizerSettings
) -> list[tokenizers.Tokenizer] | None:
    """One or two tokenizers, from the first file that can be read; None if there is none."""
    is_m2m, vocab = kind == "M2M100Tokenizer", folder / "vocab.json"
    load_pieces = load_pegasus if kind == "PegasusTokenizer" else load_t5
    loaders: dict[str, Callable[[pathlib.Path], list[tokenizers.Tokenizer]]] = {
        _JSON: lambda path: [load_tokenizer_json(path, json_kind, settings)],
        "source.spm": lambda path: load_marian_pair(folder, settings),
        "spiece.model": lambda path: [load_pieces(path, settings)],
        "tokenizer.model": lambda path: [load_llama(path, settings)],
        "sentencepiece.bpe.model": lambda path: [
            load_m2m_100(path, vocab, settings) if is_m2m else load_fairseq(path, kind, settings)
        ],
        "merges.txt": lambda _: [load_byte_pairs(folder, kind, settings)],
        "vocab.txt": lambda _: [load_word_pieces(folder, settings)],
    }
    errors: list[ValueError] = []
    for name, load in loaders.items():
        if (folder / name).exists():
            try:
                return load(folder / name)
            except ValueError as error:
                errors.append(error)
    if errors:
        raise errors[0]
    return None


def _first(made: tokenizers.Tokenizer, *names: str) -> str | None:
    """The first of these names that is a token."""
    return next((name for name in names if made.token_to_id(name) is not None), None)
