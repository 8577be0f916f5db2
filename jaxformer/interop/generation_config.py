"""Special tokens and generation settings of models, which are read, written, or refused."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.errors import ConfigError
from jaxformer.interop.tokenizers.loading import read_tokenizer_config, special_token_names
from jaxformer.storage import read_object, shown
from jaxformer.text import Tokenizer

_FILE = "generation_config.json"
# Fields with the id of one special token, and their names in `SpecialTokens`.
_TOKENS = {
    "bos_token_id": "bos", "pad_token_id": "pad", "decoder_start_token_id": "decoder_start",
    "forced_bos_token_id": "forced_first", "forced_eos_token_id": "forced_last",
}  # fmt: skip
_TOKEN_FIELDS = (*_TOKENS, "eos_token_id")
_SAMPLING = ("temperature", "top_k", "top_p", "min_p")
SEARCH = {
    "num_beams": "beam_size", "length_penalty": "length_penalty",
    "early_stopping": "early_stopping", "num_return_sequences": "num_best",
}  # fmt: skip
"""Fields of beam search, and their names in `BeamSearchConfig`."""
_NO_SEARCH = BeamSearchConfig(beam_size=1)
# Other supported fields, with transformers' defaults.
_DEFAULTS = {
    "bad_words_ids": [],  # of one token each; forbidden, unless they end the text
    "suppress_tokens": [],  # forbidden
    "renormalize_logits": False, "max_length": None, "max_new_tokens": None,
    "min_length": 0,
    "min_new_tokens": None,  # wins over min_length, even if it is 0
    "no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,  # without beam search
    "do_sample": False,  # without beam search; if false, temperature is 0 here
    "temperature": 1.0,  # this and the next three only count if do_sample
    "top_k": 50,  # 0 for no limit
    "top_p": None,  # 1 for all
    "min_p": None,
    "num_beams": 1,  # above 1, there is a beam search
    "num_return_sequences": 1,  # with beam search
    "length_penalty": 1.0, "early_stopping": False,
}  # fmt: skip
# Unsupported fields, with values that have no effect; null has none, either.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "max_time": (), "stop_strings": (), "use_mtp": (False,), "top_h": (), "typical_p": (1,),
    "epsilon_cutoff": (0,), "eta_cutoff": (0,), "encoder_repetition_penalty": (1,),
    "encoder_no_repeat_ngram_size": (0,), "exponential_decay_length_penalty": (),
    "begin_suppress_tokens": ([],), "sequence_bias": (),
    "token_healing": (False,), "guidance_scale": (1,), "watermarking_config": (),
    "penalty_alpha": (0,), "dola_layers": (), "diversity_penalty": (0,), "num_beam_groups": (1,),
    "constraints": (), "force_words_ids": (), "assistant_ensemble_weight": (),
    "is_assistant": (False,),  # such a model ends when it is unsure
    "cache_implementation": (
        "dynamic", "static", "offloaded", "offloaded_static", "sliding_window", "hybrid"
    ),
    # In config.json of older BARTs: bos_token_id is forced to be the first.
    "force_bos_token_to_be_generated": (False,),
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Special tokens and generation settings of a model.

    Args:
        bos: id of the token that begins a text, if any.
        eos: ids of the tokens that end a text; if empty, the tokenizer's end of text. -1 for none.
        pad: id of the padding token.
        decoder_start: id of the first input token of an encoder-decoder's decoder.
        forbidden: ids of tokens that are never generated.
        renormalize: whether beam search scales the probabilities of the remaining tokens to sum to
            1; without beam search, it has no effect.
        forced_first: id of the token that is always generated first, such as a language token.
        forced_last: id of the token that is generated last if max_length is reached.
        max_length: maximum length of a text in tokens, including the prompt.
        max_new_tokens: maximum number of generated tokens; takes precedence over max_length.
        sampling: sampling settings; temperature 0 for greedy decoding.
        search: beam search settings; None for transformers' defaults, which do not search. With
            beam_size 1, they are for a call that sets another.
        unsupported: settings that would change the generated text but have no option here, by their
            Hugging Face names.
        model_type: in a run, model type of the folder that its model comes from, which an export
            writes again if it can.
    """

    bos: int | None = None
    eos: tuple[int, ...] = ()
    pad: int | None = None
    decoder_start: int | None = None
    forbidden: tuple[int, ...] = ()
    renormalize: bool = False
    forced_first: int | None = None
    forced_last: int | None = None
    max_length: int | None = None
    max_new_tokens: int | None = None
    sampling: SamplingConfig = SamplingConfig(temperature=0.0)
    search: BeamSearchConfig | None = None
    unsupported: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    model_type: str | None = None


def require_supported(unsupported: Mapping[str, Any]) -> None:
    """Raises ConfigError if there are unsupported generation settings."""
    if not unsupported:
        return
    listed = " and ".join(f"{name}={shown(value)}" for name, value in unsupported.items())
    raise ConfigError(
        f"the model has unsupported generation settings, alone or beside the others: {listed}; to "
        f"generate without them, pass ignore={tuple(unsupported)!r}, or --ignore "
        f"{' '.join(unsupported)}"
    )


def read_special_tokens(
    folder: pathlib.Path, config_values: Mapping[str, Any], *, tokenizer: Tokenizer | None = None,
    ignore: tuple[str, ...] = (), generates: bool = True, translates: bool = False,
) -> SpecialTokens:  # fmt: skip
    """Reads the special tokens and generation settings of a Hugging Face folder."""
    # Ids of special tokens are from generation_config.json, else from config.json, else from the
    # token names in tokenizer_config.json. As in transformers, all other settings are from
    # generation_config.json if it exists, else from config.json.
    settings = read_object(folder / _FILE) if (folder / _FILE).exists() else config_values
    values = {
        name: value
        for name, value in settings.items()
        if name not in ignore and (generates or name in _TOKEN_FIELDS) and value is not None
    }
    names = special_token_names(read_tokenizer_config(folder))
    if translates and "bos_token_id" in values:
        values.setdefault("decoder_start_token_id", values["bos_token_id"])
    for name in _TOKEN_FIELDS:
        if name not in values and name not in ignore:
            values[name] = config_values.get(name)
        role = name.removesuffix("_token_id")
        if values.get(name) is None and tokenizer is not None and role in names:
            values[name] = tokenizer.special_id(names[role])
    fields: dict[str, Any] = _DEFAULTS | values
    ids = {name: _list_of(fields.get(name)) for name in _TOKEN_FIELDS}
    eos, words = ids["eos_token_id"], fields["bad_words_ids"]
    # transformers never forbids EOS, either.
    forbidden = [word[0] for word in words if len(word) == 1 and word[0] not in eos]
    sampling, search = _strategy(fields)
    searches = fields["num_beams"] > 1
    is_unsupported = {
        **{name: values.get(name) not in (None, *neutral) for name, neutral in _NEUTRAL.items()},
        # These have an option, but not with such values or beside the other fields.
        **{name: len(ids[name]) > 1 for name in _TOKENS},
        "bad_words_ids": any(len(word) > 1 for word in words),
        "num_return_sequences": fields["num_return_sequences"] > 1 and not searches,
        **dict.fromkeys(("do_sample", *_SAMPLING), fields["do_sample"] and searches),
        "repetition_penalty": fields["repetition_penalty"] != 1 and searches,
    }
    tokens: dict[str, Any] = {
        key: ids[name][0] if len(ids[name]) == 1 else None for name, key in _TOKENS.items()
    }
    return SpecialTokens(
        **tokens,
        eos=tuple(eos),
        forbidden=tuple(dict.fromkeys([*forbidden, *_list_of(fields["suppress_tokens"])])),
        renormalize=fields["renormalize_logits"],
        max_length=fields["max_length"],
        max_new_tokens=fields["max_new_tokens"],
        sampling=sampling,
        search=search,
        unsupported={
            name: values[name]
            for name, is_refused in is_unsupported.items()
            if generates and is_refused and name in values
        },
    )


def _list_of(ids: int | list[int] | None) -> list[int]:
    return [] if ids is None else ids if isinstance(ids, list) else [ids]


def _strategy(fields: Mapping[str, Any]) -> tuple[SamplingConfig, BeamSearchConfig | None]:
    """Settings of sampling and of beam search, with the same constraints."""
    searches, least_new = fields["num_beams"] > 1, fields["min_new_tokens"]
    drawn: dict[str, Any] = {"temperature": 0.0}
    if fields["do_sample"] and not searches:
        drawn = {name: fields[name] for name in _SAMPLING}
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
    search = BeamSearchConfig(**beams | ({} if searches else {"num_best": 1}))
    if search == _NO_SEARCH:
        return sampling, None
    least = search_min_new_tokens(sampling)
    return sampling, dataclasses.replace(search, no_repeat_ngram_size=ngrams, min_new_tokens=least)


def search_min_new_tokens(sampling: SamplingConfig) -> int:
    """`min_new_tokens` of beam search, whose prompt is the decoder's start token."""
    return sampling.min_new_tokens or max(0, sampling.min_length - 1)


def generation_values(special: SpecialTokens) -> dict[str, Any]:
    """Content of a `generation_config.json` that transformers reads."""
    sampling, search = special.sampling, special.search
    rules: Any = sampling if search is None else search  # has the constraints on the next token
    # For a search read from a folder, `sampling` has the lengths as the folder states them.
    least = sampling.min_new_tokens or (0 if sampling.min_length else rules.min_new_tokens)
    penalty = sampling.repetition_penalty
    values: dict[str, Any] = {
        "eos_token_id": one_or_list(special.eos),
        **{name: getattr(special, key) for name, key in _TOKENS.items()},
        # transformers lets bad words end a text, but not suppressed tokens.
        "bad_words_ids": [[id] for id in special.forbidden if id not in special.eos] or None,
        "suppress_tokens": [id for id in special.forbidden if id in special.eos] or None,
        "renormalize_logits": special.renormalize or None,
        "max_length": special.max_length,
        "max_new_tokens": special.max_new_tokens,
        "no_repeat_ngram_size": rules.no_repeat_ngram_size or None,
        "min_new_tokens": least or None,
        "min_length": None if least else sampling.min_length or None,  # min_new_tokens wins
        "repetition_penalty": None if penalty == 1 else penalty,
        "do_sample": sampling.temperature > 0,
    }
    if sampling.temperature > 0:
        values |= {name: getattr(sampling, name) for name in _SAMPLING}
        values["top_k"] = sampling.top_k or 0
    if search is not None:
        values |= {name: getattr(search, key) for name, key in SEARCH.items()}
    return {name: value for name, value in values.items() if value is not None} | dict(
        special.unsupported
    )


def one_or_list(ids: tuple[int, ...]) -> int | list[int] | None:
    """Value of a field for one token or several; null for none."""
    return ids[0] if len(ids) == 1 else list(ids) or None
