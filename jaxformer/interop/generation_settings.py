"""Reading of the generation settings of Hugging Face folders."""

import pathlib
from collections.abc import Mapping
from typing import Any

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.errors import ConfigError
from jaxformer.interop.generation_fields import (
    FORCES_BOS,
    SAMPLING_FIELDS,
    SEARCH,
    TOKEN_FIELDS,
    TOKENS,
    GenerationFields,
)
from jaxformer.interop.special_tokens import SpecialTokens, require_supported
from jaxformer.interop.tokenizers.settings import read_settings
from jaxformer.storage import read_object
from jaxformer.text import Tokenizer

_FILE = "generation_config.json"
_GREEDY = {"beam_size": 1, "length_penalty": 1.0, "early_stopping": False, "num_best": 1}


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
    folder: pathlib.Path, config_values: Mapping[str, Any], *, tokenizer: Tokenizer | None = None,
    ignore: tuple[str, ...] = (), generates: bool = True, translates: bool = False,
) -> SpecialTokens:  # fmt: skip
    """Like `special_token_ids`, but returns unsupported settings instead of raising an error.

    Of a model that does not generate text, only the ids of special tokens are read. One that
    translates starts with `bos_token_id` if there is no `decoder_start_token_id`.
    """
    is_there = (folder / _FILE).exists()
    settings = read_object(folder / _FILE) if is_there else config_values
    values = {
        name: value
        for name, value in settings.items()
        if name not in ignore and (generates or name in TOKEN_FIELDS)
    }
    fields = GenerationFields(values, _FILE if is_there else "config.json")
    fields.record_all_unsupported(unknown=is_there)
    names = read_settings(folder).names
    if translates and values.get("decoder_start_token_id") is None:
        values["decoder_start_token_id"] = values.get("bos_token_id")
    for name in TOKEN_FIELDS:
        if values.get(name) is None and name not in ignore:
            values[name] = config_values.get(name)
        role = name.removesuffix("_token_id")
        if values.get(name) is None and tokenizer is not None and role in names:
            found = tokenizer.special_id(names[role])
            use_end = found is None and role == "eos"
            values[name] = tokenizer.end_of_text if use_end else found
    if not is_there and fields[FORCES_BOS]:
        values["forced_bos_token_id"] = values.get("bos_token_id")
    fields.record_unsupported(*(name for name in TOKENS if len(fields[name]) > 1))
    suppressed = fields["suppress_tokens"]
    forced = fields["forced_bos_token_id"], fields["forced_eos_token_id"]
    if any(ids and {*ids} <= {*suppressed} for ids in forced):  # transformers refuses it, too
        fields.record_unsupported("suppress_tokens")
    ids = {ours: fields[name] for name, ours in TOKENS.items()}
    eos, words = fields["eos_token_id"], fields["bad_words_ids"]
    if any(len(word) > 1 for word in words):
        fields.record_unsupported("bad_words_ids")
    # transformers never forbids EOS, either.
    forbidden = [word[0] for word in words if len(word) == 1 and word[0] not in eos]
    sampling, search = _strategy(fields)
    without_effect = fields.without_effect(
        samples=sampling.temperature > 0, searches=search is not None
    )
    return SpecialTokens(
        **{ours: found[0] if len(found) == 1 else None for ours, found in ids.items()},
        eos=tuple(eos),
        forbidden=tuple(dict.fromkeys([*forbidden, *suppressed])),
        renormalize=fields["renormalize_logits"],
        max_length=fields["max_length"],
        max_new_tokens=fields["max_new_tokens"],
        sampling=sampling,
        search=search,
        unsupported=fields.unsupported if generates else {},
        without_effect=without_effect if is_there else {},
    )


def _strategy(fields: GenerationFields) -> tuple[SamplingConfig, BeamSearchConfig | None]:
    """Settings of sampling and of beam search, with the same constraints."""
    searches, samples = fields["num_beams"] > 1, fields["do_sample"]
    penalty, least = fields["repetition_penalty"], fields["min_length"]
    least_new = fields["min_new_tokens"]
    if searches and samples:
        fields.record_unsupported(
            *(name for name in SAMPLING_FIELDS if fields.values.get(name) is not None)
        )
    if searches and penalty != 1:
        fields.record_unsupported("repetition_penalty")
    if not searches and fields["num_return_sequences"] > 1:
        fields.record_unsupported("num_return_sequences")
    drawn: dict[str, Any] = {"temperature": 0.0}
    if samples and not searches:
        drawn = {name: fields[name] for name in ("temperature", "top_p", "min_p")}
        drawn["top_k"] = fields["top_k"] or None
        if drawn["top_p"] is not None and drawn["top_p"] >= 1:  # as in transformers
            drawn["top_p"] = None
    # Without a search, they are for a call that searches.
    beams = {ours: fields[name] for name, ours in SEARCH.items()}
    if not searches:
        beams["num_best"] = 1
    ngrams = fields["no_repeat_ngram_size"]
    try:
        sampling = SamplingConfig(
            repetition_penalty=1.0 if searches else penalty,
            no_repeat_ngram_size=ngrams,
            # As in transformers, min_new_tokens wins, even if it is 0.
            min_length=least if least_new is None else 0,
            min_new_tokens=least_new or 0,
            **drawn,
        )
        if beams == _GREEDY:
            return sampling, None
        return sampling, BeamSearchConfig(
            **beams, no_repeat_ngram_size=ngrams, min_new_tokens=search_min_new_tokens(sampling)
        )
    except ConfigError as error:
        raise ConfigError(f"{fields.where}: {error}") from None


def search_min_new_tokens(sampling: SamplingConfig) -> int:
    """`min_new_tokens` of beam search, whose prompt is the decoder's start token."""
    return sampling.min_new_tokens or max(0, sampling.min_length - 1)
