"""What a folder of Hugging Face says about generating text with its model."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.errors import ConfigError
from jaxformer.interop.json_files import read_json_if_there
from jaxformer.interop.strict_json import shown
from jaxformer.interop.tokenizer_settings import read_settings
from jaxformer.text import Tokenizer

__all__ = [
    "GENERATION_FIELDS",
    "TOKEN_FIELDS",
    "SpecialTokens",
    "generation_values",
    "special_token_ids",
]

_FILE = "generation_config.json"
_IDS = (
    "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id",
    "forced_bos_token_id", "forced_eos_token_id",
)  # fmt: skip
_TAKEN = (
    *_IDS, "bad_words_ids", "suppress_tokens", "max_length", "max_new_tokens", "do_sample",
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "num_beams", "length_penalty",
    "early_stopping", "num_return_sequences", "renormalize_logits",
)  # fmt: skip
# What has the value with which it changes nothing, or null, or is refused.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "min_length": (0,), "min_new_tokens": (0,), "max_time": (), "stop_strings": (),
    "use_mtp": (False,), "top_h": (), "typical_p": (1,), "epsilon_cutoff": (0,),
    "eta_cutoff": (0,), "encoder_repetition_penalty": (1,), "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,), "exponential_decay_length_penalty": (),
    "begin_suppress_tokens": ([],), "sequence_bias": (),
    "token_healing": (False,), "guidance_scale": (1,), "watermarking_config": (),
    "penalty_alpha": (0,), "dola_layers": (), "diversity_penalty": (0,), "num_beam_groups": (1,),
    "constraints": (), "force_words_ids": (), "assistant_ensemble_weight": (),
    "cache_implementation": (
        "dynamic", "static", "offloaded", "offloaded_static", "sliding_window", "hybrid"
    ),
}  # fmt: skip
# How fast, with how much memory, with which draft, and what is returned beside the tokens.
_HARMLESS = (
    "use_cache", "cache_config", "max_cache_len", "output_attentions", "output_hidden_states",
    "output_scores", "output_logits", "return_dict_in_generate", "is_assistant",
    "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
    "prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit",
    "assistant_lookbehind", "target_lookbehind", "speculation_type", "compile_config",
    "disable_compile", "continuous_batching_config", "low_memory", "prefill_chunk_size",
    "remove_invalid_values", "transformers_version", "_from_model_config", "_commit_hash",
)  # fmt: skip
GENERATION_FIELDS = frozenset((*_TAKEN, *_NEUTRAL, *_HARMLESS))
"""Fields of transformers' GenerationConfig that are decided on; others are refused."""

TOKEN_FIELDS = frozenset(_IDS)
"""Those that are ids of special tokens."""

_DEFAULT_TOP_K = 50  # of transformers, where a model that is sampled from says none


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Special tokens of a model, and how text is generated with it.

    Args:
        bos: id of the token that begins a text, if there is one.
        eos: ids of the tokens that end a text.
        pad: id of the token that fills up.
        decoder_start: id of what the decoder of an encoder-decoder is given first.
        forbidden: ids of tokens that are never generated.
        renormalize: whether a beam search counts the probabilities of the other tokens to 1, which
            changes nothing elsewhere.
        forced_first: id of the token that is generated first, such as that of a language.
        forced_last: id of the token that is generated last, where max_length is reached.
        max_length: longest text in tokens, with the prompt.
        max_new_tokens: most tokens that are generated; it wins over max_length.
        sampling: of the next token; temperature 0 where the likeliest is taken.
        search: beam search; None where there is none.
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


def special_token_ids(
    folder: pathlib.Path,
    config_values: Mapping[str, Any],
    *,
    tokenizer: Tokenizer | None = None,
    ignore: tuple[str, ...] = (),
) -> SpecialTokens:
    """Reads what a folder says about special tokens and generation.

    Ids are those of `generation_config.json`, else of `config.json`, else of the tokens that
    `tokenizer_config.json` names. As in transformers, all other settings are those of
    `generation_config.json` where there is one, else of `config.json`.

    Args:
        folder: of the model.
        config_values: content of its `config.json`.
        tokenizer: of the folder, which knows the ids of tokens by their names.
        ignore: names of fields that are known not to matter.

    Raises:
        CheckpointError: a file is damaged.
        ConfigError: a setting would change what is generated, and is not supported; or has a value
            that no model can have.

    Example:
        >>> import tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> special = special_token_ids(folder, {"eos_token_id": [2, 7], "num_beams": 4})
        >>> special.eos, special.search.beam_size, special.sampling.temperature
        ((2, 7), 4, 0.0)
        >>> special_token_ids(folder, {"no_repeat_ngram_size": 3})
        Traceback (most recent call last):
        ...
        jaxformer.errors.ConfigError: no_repeat_ngram_size=3 of config.json is not supported; ...
    """
    generation = read_json_if_there(folder / _FILE)
    is_there = (folder / _FILE).exists()
    where = _FILE if is_there else "config.json"
    settings = generation if is_there else {**config_values}
    settings = {key: value for key, value in settings.items() if key not in ignore}
    if is_there and (unknown := sorted(settings.keys() - GENERATION_FIELDS)):
        raise ConfigError(
            f"{unknown[0]}={shown(settings[unknown[0]])} of {where} is not known; if it does not "
            f"matter, pass ignore=({unknown[0]!r},)"
        )
    for name, neutral in _NEUTRAL.items():
        value = settings.get(name)
        if value is not None and value not in neutral:
            _refuse(name, value, where)
    fields = _Fields({name: settings.get(name) for name in _TAKEN}, where)
    names = read_settings(folder).names
    for name in _IDS:
        if fields.values[name] is None and name not in ignore:
            fields.values[name] = config_values.get(name)
        role = name.removesuffix("_token_id")
        if fields.values[name] is None and tokenizer is not None and role in names:
            fields.values[name] = _id_of(tokenizer, names[role], role)
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
    )


def generation_values(special: SpecialTokens) -> dict[str, Any]:
    """Content of a `generation_config.json` that says the same.

    Example:
        >>> generation_values(SpecialTokens(eos=(2,), forbidden=(5,)))
        {'eos_token_id': 2, 'bad_words_ids': [[5]], 'do_sample': False}
    """
    sampling, search = special.sampling, special.search
    eos: Any = list(special.eos)
    values = {
        "bos_token_id": special.bos,
        "eos_token_id": (eos[0] if len(eos) == 1 else eos) if eos else None,
        "pad_token_id": special.pad,
        "decoder_start_token_id": special.decoder_start,
        "bad_words_ids": [[token] for token in special.forbidden] or None,
        "renormalize_logits": special.renormalize or None,
        "forced_bos_token_id": special.forced_first,
        "forced_eos_token_id": special.forced_last,
        "max_length": special.max_length,
        "max_new_tokens": special.max_new_tokens,
        "do_sample": sampling.temperature > 0,
    }
    if sampling.temperature > 0:
        values |= {
            "temperature": sampling.temperature,
            "top_k": sampling.top_k or 0,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
        }
    if sampling.repetition_penalty != 1:
        values["repetition_penalty"] = sampling.repetition_penalty
    if search is not None:
        values |= {
            "num_beams": search.beam_size,
            "length_penalty": search.length_penalty,
            "early_stopping": search.early_stopping,
            "num_return_sequences": search.num_best,
        }
    return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class _Fields:
    """Values of a file, read with their types."""

    values: dict[str, Any]
    where: str

    def wrong(self, name: str, expected: str) -> ConfigError:
        return ConfigError(
            f"{name} of {self.where} must be {expected}, got {shown(self.values[name])}; take the "
            "file that is with the weights"
        )

    def ids(self, name: str) -> tuple[int, ...]:
        value = self.values[name]
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if not all(type(each) is int and 0 <= each < 2**31 for each in ids):
            raise self.wrong(name, "an id or a list of ids")
        return tuple(ids)

    def id(self, name: str) -> int | None:
        ids = self.ids(name)
        if len(ids) > 1:
            raise ConfigError(
                f"{name}={shown(self.values[name])} of {self.where} is not supported: it must be "
                "one id"
            )
        return ids[0] if ids else None

    def count(self, name: str) -> int | None:
        value = self.values[name]
        if value is not None and (type(value) is not int or value < 1):
            raise self.wrong(name, "a positive integer")
        return value

    def flag(self, name: str) -> bool:
        value = self.values[name]
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return bool(value)

    def number(self, name: str) -> float | None:
        value = self.values[name]
        if value is not None and type(value) not in (int, float):
            raise self.wrong(name, "a number")
        return None if value is None else float(value)


def _strategy(fields: _Fields) -> tuple[SamplingConfig, BeamSearchConfig | None]:
    sampled, beams = fields.flag("do_sample"), fields.count("num_beams") or 1
    penalty, best = fields.number("repetition_penalty"), fields.count("num_return_sequences") or 1
    if beams > 1 and sampled:
        raise ConfigError(
            f"num_beams={beams} of {fields.where} with do_sample=true, which samples in a beam "
            "search, is not supported; pass ignore=('do_sample',) or ignore=('num_beams',)"
        )
    if beams > 1 and penalty not in (None, 1):
        _refuse("repetition_penalty", penalty, f"{fields.where}, in a beam search,")
    if beams == 1 and best > 1:
        _refuse("num_return_sequences", best, f"{fields.where} without a beam search")
    try:
        sampling = SamplingConfig(
            repetition_penalty=1.0 if penalty is None else penalty,
            **(_sampling(fields) if sampled else {"temperature": 0.0}),
        )
        if beams == 1:
            return sampling, None
        early, length = fields.values["early_stopping"], fields.number("length_penalty")
        return sampling, BeamSearchConfig(
            beam_size=beams,
            length_penalty=1.0 if length is None else length,
            early_stopping=False if early is None else early,
            num_best=best,
        )
    except ConfigError as error:
        raise ConfigError(f"{fields.where}: {error}") from None


def _sampling(fields: _Fields) -> dict[str, Any]:
    temperature, top_k = fields.number("temperature"), fields.values["top_k"]
    if top_k is not None and (type(top_k) is not int or top_k < 0):
        raise fields.wrong("top_k", "an integer of at least 0")
    top_p = fields.number("top_p")
    return {
        "temperature": 1.0 if temperature is None else temperature,
        "top_k": _DEFAULT_TOP_K if top_k is None else top_k or None,
        "top_p": None if top_p == 1 else top_p,
        "min_p": fields.number("min_p"),
    }


def _forbidden(fields: _Fields, eos: tuple[int, ...]) -> tuple[int, ...]:
    words = fields.values["bad_words_ids"]
    if not isinstance(words, list | None):
        raise fields.wrong("bad_words_ids", "a list of lists of ids")
    forbidden = []
    for word in words or []:
        if not isinstance(word, list) or not word or not all(type(each) is int for each in word):
            raise fields.wrong("bad_words_ids", "a list of lists of ids")
        if len(word) > 1:
            raise ConfigError(
                f"bad_words_ids of {fields.where} with a word of several tokens, {shown(word)}, is "
                "not supported; if it does not matter, pass ignore=('bad_words_ids',)"
            )
        if word[0] not in eos:  # as in transformers, which never forbids the end
            forbidden.append(word[0])
    return tuple(dict.fromkeys([*forbidden, *fields.ids("suppress_tokens")]))


def _id_of(tokenizer: Tokenizer, name: str, role: str) -> int | None:
    found = tokenizer.special_id(name)
    return tokenizer.end_of_text if found is None and role == "eos" else found


def _refuse(name: str, value: Any, where: str) -> None:
    raise ConfigError(
        f"{name}={shown(value)} of {where} is not supported; if it does not matter, pass "
        f"ignore=({name!r},)"
    )
