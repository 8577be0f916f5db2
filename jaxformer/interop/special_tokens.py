"""Special tokens of a model, and its generation settings."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.errors import ConfigError
from jaxformer.storage import shown

__all__ = ["SpecialTokens", "generation_values", "require_supported"]

# Contexts in which these settings are not supported.
_CONTEXTS = {
    "do_sample": "in beam search",
    "repetition_penalty": "in beam search",
    "num_return_sequences": "without beam search",
    "bad_words_ids": "with multi-token words",
    "temperature": "in beam search",
    "top_k": "in beam search",
    "top_p": "in beam search",
    "min_p": "in beam search",
    "num_beams": "for a decoder",
    "length_penalty": "for a decoder",
    "early_stopping": "for a decoder",
    "forced_bos_token_id": "for a decoder",
    "forced_eos_token_id": "for a decoder",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Special tokens and generation settings of a model.

    Args:
        bos: id of the token that begins a text, if any.
        eos: ids of the tokens that end a text.
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
        search: beam search settings of an encoder-decoder; None without beam search.
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
    listed = " and ".join(
        " ".join([f"{name}={shown(value)}", *filter(None, [_CONTEXTS.get(name)])])
        for name, value in unsupported.items()
    )
    raise ConfigError(
        f"the model has unsupported generation settings: {listed}; to generate without them, pass "
        f"ignore={tuple(unsupported)!r}, or --ignore {' '.join(unsupported)}"
    )


def generation_values(special: SpecialTokens) -> dict[str, Any]:
    """Content of `generation_config.json`.

    Example:
        >>> generation_values(SpecialTokens(eos=(2,), forbidden=(5,)))
        {'eos_token_id': 2, 'bad_words_ids': [[5]], 'do_sample': False}
    """
    sampling, search = special.sampling, special.search
    eos: Any = list(special.eos)
    rules: Any = sampling if search is None else search  # has the constraints on the next token
    # For a search read from a folder, `sampling` has the lengths as the folder states them.
    least = sampling.min_new_tokens or (0 if sampling.min_length else rules.min_new_tokens)
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
        "no_repeat_ngram_size": rules.no_repeat_ngram_size or None,
        "min_new_tokens": least or None,
        "min_length": None if least else sampling.min_length or None,  # min_new_tokens wins
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
    return {name: value for name, value in values.items() if value is not None} | {
        **special.unsupported
    }
