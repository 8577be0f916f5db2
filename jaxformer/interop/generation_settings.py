"""Generation settings of Hugging Face folders: a table of fields, their reader and their writer."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.errors import ConfigError
from jaxformer.interop.special_tokens import SpecialTokens, require_supported
from jaxformer.interop.tokenizers.settings import read_settings
from jaxformer.storage import read_object, shown
from jaxformer.text import Tokenizer

_FILE = "generation_config.json"
_DEFAULT_TOP_K = 50  # transformers' default for sampling
_DRAWN = ("do_sample", "temperature", "top_k", "top_p", "min_p")

# Fields with the id of a special token, and their names in `SpecialTokens`.
_IDS = {
    "bos_token_id": "bos", "pad_token_id": "pad", "decoder_start_token_id": "decoder_start",
    "forced_bos_token_id": "forced_first", "forced_eos_token_id": "forced_last",
}  # fmt: skip
_TOKEN_FIELDS = (*_IDS, "eos_token_id")


def _is_ids(value: Any) -> bool:
    ids = value if isinstance(value, list) else [value]
    return all(type(each) is int and 0 <= each < 2**31 for each in ids)


def _is_words(value: Any) -> bool:
    words = value if isinstance(value, list) else [None]
    return all(isinstance(word, list) and word and _is_ids(word) for word in words)


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "an id or a list of ids": _is_ids,
    "a list of lists of ids": _is_words,
    "a positive integer": lambda value: type(value) is int and value > 0,
    "an integer of at least 0": lambda value: type(value) is int and value >= 0,
    "true or false": lambda value: isinstance(value, bool),
    "true, false or 'never'": lambda value: isinstance(value, bool) or value == "never",
    "a number": lambda value: type(value) in (int, float),
}
# Supported fields, with what their values must be.
_SUPPORTED = {
    **dict.fromkeys((*_TOKEN_FIELDS, "suppress_tokens"), "an id or a list of ids"),
    "bad_words_ids": "a list of lists of ids",
    **dict.fromkeys(("max_length", "max_new_tokens"), "a positive integer"),
    **dict.fromkeys(("num_beams", "num_return_sequences"), "a positive integer"),
    **dict.fromkeys(("min_length", "min_new_tokens"), "an integer of at least 0"),
    **dict.fromkeys(("no_repeat_ngram_size", "top_k"), "an integer of at least 0"),
    **dict.fromkeys(("do_sample", "renormalize_logits"), "true or false"),
    "force_bos_token_to_be_generated": "true or false",
    "early_stopping": "true, false or 'never'",
    **dict.fromkeys(("temperature", "top_p", "min_p"), "a number"),
    **dict.fromkeys(("repetition_penalty", "length_penalty"), "a number"),
}
# Unsupported fields, with values that have no effect; null has none, either.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "max_time": (), "stop_strings": (), "use_mtp": (False,), "top_h": (), "typical_p": (1,),
    "epsilon_cutoff": (0,), "eta_cutoff": (0,), "encoder_repetition_penalty": (1,),
    "encoder_no_repeat_ngram_size": (0,), "exponential_decay_length_penalty": (),
    "begin_suppress_tokens": ([],), "sequence_bias": (),
    "token_healing": (False,), "guidance_scale": (1,), "watermarking_config": (),
    "penalty_alpha": (0,), "dola_layers": (), "diversity_penalty": (0,), "num_beam_groups": (1,),
    "constraints": (), "force_words_ids": (), "assistant_ensemble_weight": (),
    "cache_implementation": (
        "dynamic", "static", "offloaded", "offloaded_static", "sliding_window", "hybrid"
    ),
}  # fmt: skip
# Fields about speed, memory, draft models, and further outputs.
_HARMLESS = (
    "use_cache", "cache_config", "max_cache_len", "output_attentions", "output_hidden_states",
    "output_scores", "output_logits", "return_dict_in_generate", "is_assistant",
    "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
    "prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit",
    "assistant_lookbehind", "target_lookbehind", "speculation_type", "compile_config",
    "disable_compile", "continuous_batching_config", "low_memory", "prefill_chunk_size",
    "remove_invalid_values", "transformers_version", "_from_model_config", "_commit_hash",
)  # fmt: skip
_OLDER = "force_bos_token_to_be_generated"  # in config.json of older BART models
FIELDS = frozenset((*_SUPPORTED, *_NEUTRAL, *_HARMLESS)) - {_OLDER}


@dataclasses.dataclass(frozen=True)
class _Fields:
    """Fields of the file `where`, by name; null counts as missing."""

    values: dict[str, Any]
    where: str
    unsupported: dict[str, Any] = dataclasses.field(default_factory=dict)

    def read(self, name: str, default: Any = None) -> Any:
        """Value of a supported field; ConfigError if it has another type."""
        value, expected = self.values.get(name), _SUPPORTED[name]
        if value is None:
            return default
        if not _CHECKS[expected](value):
            raise ConfigError(
                f"{name} of {self.where} must be {expected}, got {shown(value)}; use the file that "
                "came with the weights"
            )
        return float(value) if expected == "a number" else value

    def ids(self, name: str) -> tuple[int, ...]:
        """Token ids, given as one id or a list."""
        value = self.read(name, [])
        return tuple(value) if isinstance(value, list) else (value,)

    def leave(self, *names: str) -> None:
        """Records that the values of fields are not supported."""
        self.unsupported.update((name, self.values[name]) for name in names)


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
    generates: bool = True,
) -> SpecialTokens:
    """Like `special_token_ids`, but returns unsupported settings instead of raising an error.

    Of a model that does not generate text, only the ids of special tokens are read.
    """
    is_there = (folder / _FILE).exists()
    settings = read_object(folder / _FILE) if is_there else config_values
    values = {
        name: value
        for name, value in settings.items()
        if name not in ignore and (generates or name in _TOKEN_FIELDS)
    }
    fields = _Fields(values, _FILE if is_there else "config.json")
    if is_there:
        fields.leave(*sorted(values.keys() - FIELDS))
    neutral = {name: (None, *accepted) for name, accepted in _NEUTRAL.items()}
    fields.leave(*(name for name in neutral if values.get(name) not in neutral[name]))
    names = read_settings(folder).names
    for name in _TOKEN_FIELDS:
        if values.get(name) is None and name not in ignore:
            values[name] = config_values.get(name)
        role = name.removesuffix("_token_id")
        if values.get(name) is None and tokenizer is not None and role in names:
            found = tokenizer.special_id(names[role])
            use_end = found is None and role == "eos"
            values[name] = tokenizer.end_of_text if use_end else found
    if not is_there and fields.read(_OLDER):
        values["forced_bos_token_id"] = values.get("bos_token_id")
    ids: dict[str, Any] = {ours: fields.ids(name) for name, ours in _IDS.items()}
    fields.leave(*(name for name, ours in _IDS.items() if len(ids[ours]) > 1))
    eos, words = fields.ids("eos_token_id"), fields.read("bad_words_ids", [])
    if any(len(word) > 1 for word in words):
        fields.leave("bad_words_ids")
    # transformers never forbids EOS, either.
    forbidden = [word[0] for word in words if len(word) == 1 and word[0] not in eos]
    sampling, search = _strategy(fields)
    return SpecialTokens(
        **{ours: found[0] if len(found) == 1 else None for ours, found in ids.items()},
        eos=eos,
        forbidden=tuple(dict.fromkeys([*forbidden, *fields.ids("suppress_tokens")])),
        renormalize=fields.read("renormalize_logits", False),
        max_length=fields.read("max_length"),
        max_new_tokens=fields.read("max_new_tokens"),
        sampling=sampling,
        search=search,
        unsupported=fields.unsupported if generates else {},
    )


def _strategy(fields: _Fields) -> tuple[SamplingConfig, BeamSearchConfig | None]:
    """Settings of sampling and of beam search, with the same constraints."""
    beams, best = fields.read("num_beams", 1), fields.read("num_return_sequences", 1)
    samples, penalty = fields.read("do_sample", False), fields.read("repetition_penalty", 1.0)
    if beams > 1 and samples:
        fields.leave(*(name for name in _DRAWN if fields.values.get(name) is not None))
    if beams > 1 and penalty != 1:
        fields.leave("repetition_penalty")
    if beams == 1 and best > 1:
        fields.leave("num_return_sequences")
    drawn: dict[str, Any] = {"temperature": 0.0}
    if samples and beams == 1:
        top_p = fields.read("top_p")
        drawn = {
            "temperature": fields.read("temperature", 1.0),
            "top_k": fields.read("top_k", _DEFAULT_TOP_K) or None,
            "top_p": None if top_p == 1 else top_p,
            "min_p": fields.read("min_p"),
        }
    ngram_size = fields.read("no_repeat_ngram_size", 0)
    least, least_new = fields.read("min_length", 0), fields.read("min_new_tokens")
    try:
        sampling = SamplingConfig(
            repetition_penalty=penalty if beams == 1 else 1.0,
            no_repeat_ngram_size=ngram_size,
            min_length=least if least_new is None else 0,  # as in transformers, even if it is 0
            min_new_tokens=least_new or 0,
            **drawn,
        )
        if beams == 1:
            return sampling, None
        return sampling, BeamSearchConfig(
            beam_size=beams,
            length_penalty=fields.read("length_penalty", 1.0),
            early_stopping=fields.read("early_stopping", False),
            no_repeat_ngram_size=ngram_size,
            min_new_tokens=search_min_new_tokens(sampling),
            num_best=best,
        )
    except ConfigError as error:
        raise ConfigError(f"{fields.where}: {error}") from None


def search_min_new_tokens(sampling: SamplingConfig) -> int:
    """`min_new_tokens` of beam search, whose prompt is the decoder's start token."""
    return sampling.min_new_tokens or max(0, sampling.min_length - 1)


def generation_values(special: SpecialTokens) -> dict[str, Any]:
    """Content of `generation_config.json`.

    Example:
        >>> generation_values(SpecialTokens(eos=(2,), forbidden=(5,)))
        {'eos_token_id': 2, 'bad_words_ids': [[5]], 'do_sample': False}
    """
    sampling, search = special.sampling, special.search
    rules: Any = sampling if search is None else search  # has the constraints on the next token
    # For a search read from a folder, `sampling` has the lengths as the folder states them.
    least = sampling.min_new_tokens or (0 if sampling.min_length else rules.min_new_tokens)
    penalty = sampling.repetition_penalty
    values: dict[str, Any] = {
        "eos_token_id": one_or_list(special.eos),
        **{name: getattr(special, ours) for name, ours in _IDS.items()},
        "bad_words_ids": [[token] for token in special.forbidden] or None,
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
        values |= {
            "temperature": sampling.temperature,
            "top_k": sampling.top_k or 0,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
        }
    if search is not None:
        values |= {
            "num_beams": search.beam_size,
            "length_penalty": search.length_penalty,
            "early_stopping": search.early_stopping,
            "num_return_sequences": search.num_best,
        }
    stated = {name: value for name, value in values.items() if value is not None}
    return {**stated, **special.unsupported}


def one_or_list(ids: tuple[int, ...]) -> int | list[int] | None:
    """Value of a field for one token or several; null for none."""
    return ids[0] if len(ids) == 1 else list(ids) or None
