"""Table of the generation settings of transformers: supported, neutral and harmless fields."""

from collections.abc import Callable, Mapping
from typing import Any

from jaxformer.errors import ConfigError
from jaxformer.storage import shown

# Fields with the id of one special token, and their names in `SpecialTokens`.
TOKENS = {
    "bos_token_id": "bos", "pad_token_id": "pad", "decoder_start_token_id": "decoder_start",
    "forced_bos_token_id": "forced_first", "forced_eos_token_id": "forced_last",
}  # fmt: skip
# Fields of beam search, and their names in `BeamSearchConfig`.
SEARCH = {
    "num_beams": "beam_size", "length_penalty": "length_penalty",
    "early_stopping": "early_stopping", "num_return_sequences": "num_best",
}  # fmt: skip
GREEDY = {"beam_size": 1, "length_penalty": 1.0, "early_stopping": False, "num_best": 1}
TOKEN_FIELDS = (*TOKENS, "eos_token_id")
SAMPLING = ("temperature", "top_k", "top_p", "min_p")
FORCES_BOS = "force_bos_token_to_be_generated"  # in config.json of older BARTs


def _are_ids(value: Any, least: int = 0) -> bool:
    ids = value if isinstance(value, list) else [value]
    return all(type(token) is int and least <= token < 2**31 for token in ids)


_IDS, _IDS_OR_NONE = "an id or a list of ids", "an id, -1 for none, or a list of them"
_WORDS, _POSITIVE, _COUNT = (
    "a list of lists of ids",
    "a positive integer",
    "an integer of at least 0",
)
_NUMBER, _FLAG, _FLAG_OR_NEVER = "a number", "true or false", "true, false or 'never'"
_CHECKS: dict[str, Callable[[Any], bool]] = {
    _IDS: _are_ids,
    _IDS_OR_NONE: lambda value: _are_ids(value, least=-(2**31)),
    _WORDS: lambda value: (
        isinstance(value, list)
        and all(isinstance(word, list) and word and _are_ids(word) for word in value)
    ),
    _POSITIVE: lambda value: type(value) is int and value > 0,
    _COUNT: lambda value: type(value) is int and value >= 0,
    _NUMBER: lambda value: type(value) in (int, float),
    _FLAG: lambda value: isinstance(value, bool),
    _FLAG_OR_NEVER: lambda value: isinstance(value, bool) or value == "never",
}
# Supported fields: what their values must be, and transformers' default.
_SUPPORTED: dict[str, tuple[str, Any]] = {
    **dict.fromkeys(TOKEN_FIELDS, (_IDS, ())),
    # As in transformers, an id below 0 is never generated.
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), (_IDS_OR_NONE, ())),
    FORCES_BOS: (_FLAG, False),  # forced_bos_token_id is then bos_token_id
    "bad_words_ids": (_WORDS, ()),  # of one token each; forbidden, unless they end the text
    "suppress_tokens": (_IDS, ()),  # forbidden
    "renormalize_logits": (_FLAG, False),
    "max_length": (_POSITIVE, None),
    "max_new_tokens": (_POSITIVE, None),
    "min_length": (_COUNT, 0),
    "min_new_tokens": (_COUNT, None),  # wins over min_length, even if it is 0
    "no_repeat_ngram_size": (_COUNT, 0),
    "repetition_penalty": (_NUMBER, 1.0),  # without beam search
    "do_sample": (_FLAG, False),  # without beam search; if false, temperature is 0 here
    "temperature": (_NUMBER, 1.0),  # this and the next three only count if do_sample
    "top_k": (_COUNT, 50),  # 0 for no limit
    "top_p": (_NUMBER, None),  # 1 for all
    "min_p": (_NUMBER, None),
    "num_beams": (_POSITIVE, 1),  # above 1, there is a beam search
    "num_return_sequences": (_POSITIVE, 1),  # with beam search
    "length_penalty": (_NUMBER, 1.0),
    "early_stopping": (_FLAG_OR_NEVER, False),
}
# Unsupported fields, with values that have no effect; null has none, either.
NEUTRAL: dict[str, tuple[Any, ...]] = {
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
}  # fmt: skip
# Fields about speed, memory, draft models, and further outputs.
HARMLESS = (
    "use_cache", "cache_config", "max_cache_len", "output_attentions", "output_hidden_states",
    "output_scores", "output_logits", "return_dict_in_generate",
    "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
    "prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit",
    "assistant_lookbehind", "target_lookbehind", "speculation_type", "compile_config",
    "disable_compile", "continuous_batching_config", "low_memory", "prefill_chunk_size",
    "remove_invalid_values",
)  # fmt: skip
_METADATA = ("transformers_version", "_from_model_config", "_commit_hash")
FIELDS = frozenset((*_SUPPORTED, *NEUTRAL, *HARMLESS, *_METADATA)) - {FORCES_BOS}


def has_effect(name: str, values: Mapping[str, Any]) -> bool:
    """Whether a field without an option here would change the generated text."""
    return name in values and values[name] not in NEUTRAL[name]


def checked(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The supported fields, with ids as lists; ConfigError if one has another type."""
    fields = {}
    for name, (expected, default) in _SUPPORTED.items():
        if (value := values.get(name)) is None:
            fields[name] = default
            continue
        if not _CHECKS[expected](value):
            raise ConfigError(
                f"{name} of {where} must be {expected}, got {shown(value)}; use the file that came "
                "with the weights"
            )
        is_one = expected in (_IDS, _IDS_OR_NONE) and not isinstance(value, list)
        fields[name] = [value] if is_one else float(value) if expected == _NUMBER else value
    return fields
