"""Fields of transformers' `GenerationConfig`: which are supported, and their types."""

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxformer.errors import ConfigError
from jaxformer.storage import shown

__all__ = ["GENERATION_FIELDS", "NEUTRAL", "TOKEN_FIELDS", "GenerationFields"]

TOKEN_FIELDS = (
    "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id",
    "forced_bos_token_id", "forced_eos_token_id",
)  # fmt: skip
"""Fields with ids of special tokens."""

_SUPPORTED = (
    *TOKEN_FIELDS, "bad_words_ids", "suppress_tokens", "max_length", "max_new_tokens", "min_length",
    "min_new_tokens", "no_repeat_ngram_size", "do_sample", "temperature", "top_k", "top_p", "min_p",
    "repetition_penalty", "num_beams", "length_penalty", "early_stopping", "num_return_sequences",
    "renormalize_logits",
)  # fmt: skip

NEUTRAL: dict[str, tuple[Any, ...]] = {
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
"""Unsupported fields, with values that have no effect; null has none, either."""

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
GENERATION_FIELDS = frozenset((*_SUPPORTED, *NEUTRAL, *_HARMLESS))
"""All known fields."""


@dataclasses.dataclass(frozen=True)
class GenerationFields:
    """Fields of a file, read with their types; a missing field counts as null.

    `where` is the file's name, for messages; the methods add unsupported fields to `unsupported`.

    Example:
        >>> fields = GenerationFields({"num_beams": 4, "bos_token_id": [1, 2]}, "config.json")
        >>> fields.count("num_beams"), fields.id("bos_token_id"), fields.unsupported
        (4, None, {'bos_token_id': [1, 2]})
    """

    values: dict[str, Any]
    where: str
    unsupported: dict[str, Any] = dataclasses.field(default_factory=dict)

    def leave(self, name: str) -> None:
        """Records that the value of a field is not supported."""
        self.unsupported[name] = self.values[name]

    def ids(self, name: str) -> tuple[int, ...]:
        """Token ids, given as one id or a list."""

        def is_valid(value: Any) -> bool:
            ids = value if isinstance(value, list) else [value]
            return all(type(each) is int and 0 <= each < 2**31 for each in ids)

        value = self._take(name, is_valid, "an id or a list of ids")
        return () if value is None else tuple(value) if isinstance(value, list) else (value,)

    def id(self, name: str) -> int | None:
        """A token id; a list of several is not supported."""
        ids = self.ids(name)
        if len(ids) > 1:
            self.leave(name)
            return None
        return ids[0] if ids else None

    def words(self, name: str) -> list[tuple[int, ...]]:
        """A list of words, each a list of token ids."""

        def is_word(value: Any) -> bool:
            return isinstance(value, list) and bool(value) and all(type(i) is int for i in value)

        def is_valid(value: Any) -> bool:
            return isinstance(value, list) and all(map(is_word, value))

        return [tuple(word) for word in self._take(name, is_valid, "a list of lists of ids") or ()]

    def count(self, name: str, *, least: int = 1) -> int | None:
        """An integer of at least `least`, which is 0 or 1."""
        expected = "a positive integer" if least else "an integer of at least 0"
        value: int | None = self._take(
            name, lambda value: type(value) is int and value >= least, expected
        )
        return value

    def flag(self, name: str) -> bool:
        """A boolean; false if missing."""
        return bool(self._take(name, lambda value: isinstance(value, bool), "true or false"))

    def number(self, name: str) -> float | None:
        """A number."""
        value = self._take(name, lambda value: type(value) in (int, float), "a number")
        return None if value is None else float(value)

    def _take(self, name: str, is_valid: Callable[[Any], bool], expected: str) -> Any:
        value = self.values.get(name)
        if value is not None and not is_valid(value):
            raise ConfigError(
                f"{name} of {self.where} must be {expected}, got {shown(value)}; use the file that "
                "came with the weights"
            )
        return value
