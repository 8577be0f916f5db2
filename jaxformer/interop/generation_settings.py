"""Reading of special tokens and generation settings from Hugging Face folders."""

import pathlib
from collections.abc import Mapping
from typing import Any

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.errors import ConfigError
from jaxformer.interop.generation_fields import (
    GENERATION_FIELDS,
    NEUTRAL,
    TOKEN_FIELDS,
    GenerationFields,
)
from jaxformer.interop.special_tokens import SpecialTokens, require_supported
from jaxformer.interop.tokenizers.settings import read_settings
from jaxformer.storage import read_object
from jaxformer.text import Tokenizer

__all__ = ["read_special_tokens", "search_min_new_tokens", "special_token_ids"]

_FILE = "generation_config.json"
_DEFAULT_TOP_K = 50  # transformers' default for sampling


def special_token_ids(
    folder: pathlib.Path,
    config_values: Mapping[str, Any],
    *,
    tokenizer: Tokenizer | None = None,
    ignore: tuple[str, ...] = (),
) -> SpecialTokens:
    """Reads the special tokens and generation settings of a Hugging Face folder.

    The ids of special tokens are taken from `generation_config.json`, else from `config.json`, else
    from the token names in `tokenizer_config.json`. As in transformers, all other settings are
    taken from `generation_config.json` if it exists, else from `config.json`.

    Args:
        folder: folder of the model.
        config_values: content of its `config.json`.
        tokenizer: tokenizer of the folder, to look up tokens by name.
        ignore: names of fields that you know to be irrelevant.

    Raises:
        CheckpointError: a file is damaged.
        ConfigError: a setting is invalid, or is not supported and would change the generated text.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> special = special_token_ids(folder, {"eos_token_id": [2, 7], "num_beams": 4})
        >>> special.eos, special.search.beam_size, special.sampling.temperature
        ((2, 7), 4, 0.0)
        >>> special_token_ids(folder, {"typical_p": 0.9})
        Traceback (most recent call last):
        ...
        jaxformer.errors.ConfigError: the model has unsupported generation settings: ...
    """
    special = read_special_tokens(folder, config_values, tokenizer=tokenizer, ignore=ignore)
    require_supported(special.unsupported)
    return special


def read_special_tokens(
    folder: pathlib.Path,
    config_values: Mapping[str, Any],
    *,
    tokenizer: Tokenizer | None = None,
    ignore: tuple[str, ...] = (),
) -> SpecialTokens:
    """Like `special_token_ids`, but returns unsupported settings instead of raising an error."""
    generation = read_object(folder / _FILE, optional=True)
    is_there = (folder / _FILE).exists()
    settings = generation if is_there else config_values
    fields = GenerationFields(
        {key: value for key, value in settings.items() if key not in ignore},
        _FILE if is_there else "config.json",
    )
    if is_there:
        for name in sorted(fields.values.keys() - GENERATION_FIELDS):
            fields.leave(name)
    for name, neutral in NEUTRAL.items():
        value = fields.values.get(name)
        if value is not None and value not in neutral:
            fields.leave(name)
    names = read_settings(folder).names
    for name in TOKEN_FIELDS:
        if fields.values.get(name) is None and name not in ignore:
            fields.values[name] = config_values.get(name)
        role = name.removesuffix("_token_id")
        if fields.values.get(name) is None and tokenizer is not None and role in names:
            fields.values[name] = _id_of(tokenizer, names[role], role)
    if not is_there and fields.flag("force_bos_token_to_be_generated"):  # older BART files
        fields.values["forced_bos_token_id"] = fields.values.get("bos_token_id")
    eos = fields.ids("eos_token_id")
    sampling, search = _strategy(fields)
    return SpecialTokens(
        bos=fields.id("bos_token_id"),
        eos=eos,
        pad=fields.id("pad_token_id"),
        decoder_start=fields.id("decoder_start_token_id"),
        forbidden=_forbidden(fields, eos),
        renormalize=fields.flag("renormalize_logits"),
        forced_first=fields.id("forced_bos_token_id"),
        forced_last=fields.id("forced_eos_token_id"),
        max_length=fields.count("max_length"),
        max_new_tokens=fields.count("max_new_tokens"),
        sampling=sampling,
        search=search,
        unsupported=fields.unsupported,
    )


def _strategy(fields: GenerationFields) -> tuple[SamplingConfig, BeamSearchConfig | None]:
    """Settings of sampling and of beam search, with the same constraints."""
    sampled, beams = fields.flag("do_sample"), fields.count("num_beams") or 1
    penalty, best = fields.number("repetition_penalty"), fields.count("num_return_sequences") or 1
    if beams > 1 and sampled:
        for name in ("do_sample", "temperature", "top_k", "top_p", "min_p"):
            if fields.values.get(name) is not None:
                fields.leave(name)
        sampled = False
    if beams > 1 and penalty not in (None, 1):
        fields.leave("repetition_penalty")
        penalty = None
    if beams == 1 and best > 1:
        fields.leave("num_return_sequences")
    ngram_size = fields.count("no_repeat_ngram_size", least=0) or 0
    least_length, least_new = (
        fields.count(name, least=0) for name in ("min_length", "min_new_tokens")
    )
    if least_length is None or least_new is not None:  # as in transformers, even if it is 0
        least_length = 0
    try:
        sampling = SamplingConfig(
            repetition_penalty=1.0 if penalty is None else penalty,
            no_repeat_ngram_size=ngram_size,
            min_length=least_length,
            min_new_tokens=least_new or 0,
            **(_sampling(fields) if sampled else {"temperature": 0.0}),
        )
        if beams == 1:
            return sampling, None
        early, length = fields.values.get("early_stopping"), fields.number("length_penalty")
        return sampling, BeamSearchConfig(
            beam_size=beams,
            length_penalty=1.0 if length is None else length,
            early_stopping=False if early is None else early,
            no_repeat_ngram_size=ngram_size,
            min_new_tokens=search_min_new_tokens(sampling),
            num_best=best,
        )
    except ConfigError as error:
        raise ConfigError(f"{fields.where}: {error}") from None


def search_min_new_tokens(sampling: SamplingConfig) -> int:
    """`min_new_tokens` of beam search, whose prompt is the decoder's start token."""
    return sampling.min_new_tokens or max(0, sampling.min_length - 1)


def _sampling(fields: GenerationFields) -> dict[str, Any]:
    temperature, top_p = fields.number("temperature"), fields.number("top_p")
    top_k = fields.count("top_k", least=0)
    return {
        "temperature": 1.0 if temperature is None else temperature,
        "top_k": _DEFAULT_TOP_K if top_k is None else top_k or None,
        "top_p": None if top_p == 1 else top_p,
        "min_p": fields.number("min_p"),
    }


def _forbidden(fields: GenerationFields, eos: tuple[int, ...]) -> tuple[int, ...]:
    """Tokens that are never generated; multi-token words are not supported."""
    words = fields.words("bad_words_ids")
    if any(len(word) > 1 for word in words):
        fields.leave("bad_words_ids")
    # transformers never forbids EOS, either.
    forbidden = [word[0] for word in words if len(word) == 1 and word[0] not in eos]
    return tuple(dict.fromkeys([*forbidden, *fields.ids("suppress_tokens")]))


def _id_of(tokenizer: Tokenizer, name: str, role: str) -> int | None:
    found = tokenizer.special_id(name)
    return tokenizer.end_of_text if found is None and role == "eos" else found
