"""Loading of the tokenizers of Hugging Face folders."""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import tokenizers

from jaxformer.errors import ConfigError
from jaxformer.interop.tokenizers.slow_tokenizers import convert_tokenizers, surround
from jaxformer.storage import read_object, some
from jaxformer.text import Tokenizer, TokenRoles

_JSON = "tokenizer.json"
_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
# Classes of multilingual translators: default language, and whether its token precedes the text.
_LANGUAGES = {
    "MBartTokenizer": ("en_XX", False), "MBart50Tokenizer": ("en_XX", True),
    "NllbTokenizer": ("eng_Latn", True), "M2M100Tokenizer": ("en", True),
}  # fmt: skip


def read_tokenizer_config(folder: pathlib.Path) -> dict[str, Any]:
    """Content of `tokenizer_config.json` and of `special_tokens_map.json`."""
    config = read_object(folder / "tokenizer_config.json", optional=True)
    # As in transformers, the second file counts only if the first has no added_tokens_decoder.
    if config.get("added_tokens_decoder") is None:
        config |= read_object(folder / "special_tokens_map.json", optional=True)
    return config


def special_token_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Names of special tokens by role, such as "eos"."""
    values = {role: config.get(f"{role}_token") for role in _ROLES}
    names = {
        role: value.get("content") if isinstance(value, dict) else value
        for role, value in values.items()
    }
    return {role: name for role, name in names.items() if isinstance(name, str)}


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
    """Loads the tokenizers of a Hugging Face folder, from `tokenizer.json` where there is one.

    `tokenizer.json` is read as it is, with the added tokens of `tokenizer_config.json`. A folder
    without it, such as one with `spiece.model` or `vocab.txt`, is converted by transformers
    (`pip install "jaxformer[hf]"`).

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
        CheckpointError: a file is damaged, or transformers cannot read it.
        ConfigError: transformers is needed and not installed, or the model does not have a
            language.
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
    config = read_tokenizer_config(folder)
    names = special_token_names(config)
    end, mask = names.get("eos"), names.get("mask")
    is_json = (folder / _JSON).exists()
    if is_json:
        source = target = tokenizers.Tokenizer.from_str(Tokenizer.load(folder / _JSON).to_json())
        added = config.get("added_tokens_decoder") or {}
        source.add_tokens([tokenizers.AddedToken(**added[id]) for id in sorted(added, key=int)])
    else:
        converted = convert_tokenizers(folder)
        if converted is None:
            return None
        source, target, slow = converted
        end, mask = slow.eos_token, slow.mask_token
    if mask is None:
        mask = next((name for name in ("[MASK]", "<mask>") if source.token_to_id(name)), None)
    chosen = {
        name: language
        for name, language in (("src_lang", source_language), ("tgt_lang", target_language))
        if language is not None
    }
    kind = str(config.get("tokenizer_class") or "").removesuffix("Fast")
    is_named = kind not in ("", "PreTrainedTokenizer", "TokenizersBackend")
    if not is_named:
        m2m_100 = "M2M100Tokenizer" if (folder / "vocab.json").exists() else "NllbTokenizer"
        kind = {"mbart": "MBartTokenizer", "m2m_100": m2m_100}.get(model_type, kind)
    if chosen and kind not in _LANGUAGES:
        raise ConfigError(
            f"a language can only be chosen for a multilingual model, got {', '.join(chosen)} for "
            f"{folder}, whose tokenizer is a {kind or 'plain one'}; leave it out"
        )
    # tokenizer.json has the special tokens around a text, but these classes set them themselves.
    if kind in _LANGUAGES and (not is_json or chosen or is_named):
        config |= chosen
        languages = [str(config.get("src_lang") or _LANGUAGES[kind][0])]
        languages.append(str(config.get("tgt_lang") or languages[0]))
        target = tokenizers.Tokenizer.from_str(source.to_str())
        for tokenizer, language in zip((source, target), languages, strict=True):
            _surround_with_language(tokenizer, kind, language, config)
        if languages[0] == languages[1]:
            target = source
    roles = TokenRoles(
        end_of_text=TokenRoles.end_of_text if end is None else end,
        mask=TokenRoles.mask if mask is None else mask,
        surrounded=True,
    )
    loaded = Tokenizer(source, roles)
    return Tokenizers(loaded, loaded if target is source else Tokenizer(target, roles))


def _surround_with_language(
    tokenizer: tokenizers.Tokenizer, kind: str, language: str, config: Mapping[str, Any]
) -> None:
    """Sets the tokens around texts of a language; ConfigError for one that there is not."""
    is_marked = kind == "M2M100Tokenizer" and not language.startswith("__")
    name = f"__{language}__" if is_marked else language
    if tokenizer.token_to_id(name) is None:
        added = tokenizer.get_added_tokens_decoder().values()
        names = [token.content.strip("_") for token in added if token.content[0] != "<"]
        near = [name for name in names if name.startswith(language)] or names
        raise ConfigError(
            f"a language must be one of the model's, such as {some(near)}, got {language!r}"
        )
    end = special_token_names(config).get("eos", "</s>")
    is_old_nllb = kind == "NllbTokenizer" and config.get("legacy_behaviour")
    if _LANGUAGES[kind][1] and not is_old_nllb:
        surround(tokenizer, [name], [end])
    else:
        surround(tokenizer, [], [end, name])
