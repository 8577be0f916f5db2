"""Generation settings of Hugging Face folders: one table that is read and written."""

import pathlib
from collections.abc import Mapping
from typing import Any

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.errors import ConfigError
from jaxformer.interop.generation_fields import (
    FIELDS,
    FORCES_BOS,
    GREEDY,
    HARMLESS,
    NEUTRAL,
    SAMPLING,
    SEARCH,
    TOKEN_FIELDS,
    TOKENS,
    checked,
    has_effect,
)  # fmt: skip
from jaxformer.interop.special_tokens import SpecialTokens
from jaxformer.interop.tokenizers.settings import read_tokenizer_config, special_token_names
from jaxformer.storage import read_object
from jaxformer.text import Tokenizer

_FILE = "generation_config.json"


def read_special_tokens(
    folder: pathlib.Path, config_values: Mapping[str, Any], *, tokenizer: Tokenizer | None = None,
    ignore: tuple[str, ...] = (), generates: bool = True, translates: bool = False,
) -> SpecialTokens:  # fmt: skip
    """Reads the special tokens and generation settings of a Hugging Face folder."""
    # Ids of special tokens are from generation_config.json, else from config.json, else from the
    # token names in tokenizer_config.json. As in transformers, all other settings are from
    # generation_config.json if it exists, else from config.json.
    is_there = (folder / _FILE).exists()
    settings = read_object(folder / _FILE) if is_there else config_values
    values = {
        name: value
        for name, value in settings.items()
        if name not in ignore and (generates or name in TOKEN_FIELDS) and value is not None
    }
    unknown = sorted(values.keys() - FIELDS) if is_there else []
    unsupported = [*unknown, *(name for name in NEUTRAL if has_effect(name, values))]
    names = special_token_names(read_tokenizer_config(folder))
    if translates and "bos_token_id" in values:
        values.setdefault("decoder_start_token_id", values["bos_token_id"])
    for name in TOKEN_FIELDS:
        if name not in values and name not in ignore:
            values[name] = config_values.get(name)
        role = name.removesuffix("_token_id")
        if values.get(name) is None and tokenizer is not None and role in names:
            by_name = tokenizer.special_id(names[role])
            use_end = by_name is None and role == "eos"
            values[name] = tokenizer.end_of_text if use_end else by_name
    fields = checked(values, _FILE if is_there else "config.json")
    if not is_there and fields[FORCES_BOS]:
        fields["forced_bos_token_id"] = fields["bos_token_id"]
    unsupported += [name for name in TOKENS if len(fields[name]) > 1]
    forced = [*(fields[f"forced_{end}_token_id"] for end in ("bos", "eos"))]
    eos, words, suppressed = (
        fields[name] for name in ("eos_token_id", "bad_words_ids", "suppress_tokens")
    )
    if any(ids and {*ids} <= {*suppressed} for ids in forced):  # transformers refuses it, too
        unsupported.append("suppress_tokens")
    if any(len(word) > 1 for word in words):
        unsupported.append("bad_words_ids")
    # transformers never forbids EOS, either.
    forbidden = [word[0] for word in words if len(word) == 1 and word[0] not in eos]
    unsupported += _conflicts(fields, values)
    try:
        sampling, search = _strategy(fields)
    except ConfigError as error:
        raise ConfigError(f"{_FILE if is_there else 'config.json'}: {error}") from None
    idle = {*NEUTRAL, *HARMLESS} - {*unsupported}  # fields that change nothing
    idle |= {*SAMPLING} if sampling.temperature == 0 else set()
    idle |= {*SEARCH} - {"num_beams"} if search is None else set()
    ids = {key: fields[name] for name, key in TOKENS.items()}
    return SpecialTokens(
        **{key: token_ids[0] if len(token_ids) == 1 else None for key, token_ids in ids.items()},
        eos=tuple(eos),
        forbidden=tuple(dict.fromkeys([*forbidden, *suppressed])),
        renormalize=fields["renormalize_logits"],
        max_length=fields["max_length"],
        max_new_tokens=fields["max_new_tokens"],
        sampling=sampling,
        search=search,
        unsupported={name: values[name] for name in unsupported} if generates else {},
        without_effect={
            name: value
            for name, value in values.items()
            if is_there and name in idle and name not in unsupported and value is not None
        },
    )


def _conflicts(fields: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """Fields that are not supported with or without beam search."""
    if fields["num_beams"] == 1:
        return ["num_return_sequences"] if fields["num_return_sequences"] > 1 else []
    names = []
    if fields["do_sample"]:
        names = [name for name in ("do_sample", *SAMPLING) if values.get(name) is not None]
    return names + ["repetition_penalty"] * (fields["repetition_penalty"] != 1)


def _strategy(fields: Mapping[str, Any]) -> tuple[SamplingConfig, BeamSearchConfig | None]:
    """Settings of sampling and of beam search, with the same constraints."""
    searches, least_new = fields["num_beams"] > 1, fields["min_new_tokens"]
    drawn: dict[str, Any] = {"temperature": 0.0}
    if fields["do_sample"] and not searches:
        drawn = {name: fields[name] for name in SAMPLING}
        drawn["top_k"] = fields["top_k"] or None
        drawn["top_p"] = None if (fields["top_p"] or 0) >= 1 else fields["top_p"]
    ngrams = fields["no_repeat_ngram_size"]
    sampling = SamplingConfig(
        repetition_penalty=1.0 if searches else fields["repetition_penalty"],
        no_repeat_ngram_size=ngrams,
        min_length=fields["min_length"] if least_new is None else 0,
        min_new_tokens=least_new or 0,
        **drawn,
    )
    # Without a search, they are for a call that searches.
    beams = {key: fields[name] for name, key in SEARCH.items()}
    beams["num_best"] = beams["num_best"] if searches else 1
    if beams == GREEDY:
        return sampling, None
    least = search_min_new_tokens(sampling)
    return sampling, BeamSearchConfig(**beams, no_repeat_ngram_size=ngrams, min_new_tokens=least)


def search_min_new_tokens(sampling: SamplingConfig) -> int:
    """`min_new_tokens` of beam search, whose prompt is the decoder's start token."""
    return sampling.min_new_tokens or max(0, sampling.min_length - 1)


def generation_values(special: SpecialTokens) -> dict[str, Any]:
    """Content of a `generation_config.json` that transformers reads."""
    sampling, search = special.sampling, special.search
    rules: Any = sampling if search is None else search  # has the constraints on the next token
    # For a search read from a folder, `sampling` has the lengths as the folder states them.
    least = sampling.min_new_tokens or (0 if sampling.min_length else rules.min_new_tokens)
    values: dict[str, Any] = {
        "eos_token_id": one_or_list(special.eos),
        **{name: getattr(special, key) for name, key in TOKENS.items()},
        # transformers lets bad words end a text, but not suppressed tokens.
        "bad_words_ids": [[id] for id in special.forbidden if id not in special.eos] or None,
        "suppress_tokens": [id for id in special.forbidden if id in special.eos] or None,
        "renormalize_logits": special.renormalize or None,
        "max_length": special.max_length,
        "max_new_tokens": special.max_new_tokens,
        "no_repeat_ngram_size": rules.no_repeat_ngram_size or None,
        "min_new_tokens": least or None,
        "min_length": None if least else sampling.min_length or None,  # min_new_tokens wins
        "repetition_penalty": None
        if sampling.repetition_penalty == 1
        else sampling.repetition_penalty,
        "do_sample": sampling.temperature > 0,
    }
    if sampling.temperature > 0:
        values |= {name: getattr(sampling, name) for name in SAMPLING}
        values["top_k"] = sampling.top_k or 0
    if search is not None:
        values |= {name: getattr(search, key) for name, key in SEARCH.items()}
    values = {**special.without_effect, **values}
    return {name: value for name, value in values.items() if value is not None} | dict(
        special.unsupported
    )


def one_or_list(ids: tuple[int, ...]) -> int | list[int] | None:
    """Value of a field for one token or several; null for none."""
    return ids[0] if len(ids) == 1 else list(ids) or None
