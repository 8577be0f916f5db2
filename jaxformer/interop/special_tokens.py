"""Special tokens of a model, and how text is generated with it, as folders of Hugging Face say."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.errors import ConfigError
from jaxformer.interop.strict_json import shown

__all__ = ["SpecialTokens", "generation_values", "require_supported"]

# Of settings that are supported elsewhere, where they are not.
_CONTEXTS = {
    "do_sample": "in a search",
    "repetition_penalty": "in a search",
    "num_return_sequences": "without a beam search",
    "bad_words_ids": "with words of several tokens",
    "temperature": "in a search",
    "top_k": "in a search",
    "top_p": "in a search",
    "min_p": "in a search",
    "num_beams": "of a decoder",
    "length_penalty": "of a decoder",
    "early_stopping": "of a decoder",
    "forced_bos_token_id": "of a decoder",
    "forced_eos_token_id": "of a decoder",
}


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
        search: beam search of an encoder-decoder; None where there is none.
        unsupported: settings that change what is generated, and that there is no option for: their
            names and values at Hugging Face.
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


def require_supported(unsupported: Mapping[str, Any]) -> None:
    """Raises ConfigError where text would be generated in another way than a folder says.

    Args:
        unsupported: settings that there is no option for, by their names.

    Example:
        >>> require_supported({"typical_p": 0.9})
        Traceback (most recent call last):
        ...
        jaxformer.errors.ConfigError: the model is made to generate with typical_p=0.9, which is ...
    """
    if not unsupported:
        return
    listed = " and ".join(
        " ".join([f"{name}={shown(value)}", *filter(None, [_CONTEXTS.get(name)])])
        for name, value in unsupported.items()
    )
    raise ConfigError(
        f"the model is made to generate with {listed}, which is not supported; if it does not "
        f"matter, pass ignore={tuple(unsupported)!r}, or --ignore {' '.join(unsupported)}"
    )


def generation_values(special: SpecialTokens) -> dict[str, Any]:
    """Content of a `generation_config.json` that says the same.

    Example:
        >>> generation_values(SpecialTokens(eos=(2,), forbidden=(5,)))
        {'eos_token_id': 2, 'bad_words_ids': [[5]], 'do_sample': False}
    """
    sampling, search = special.sampling, special.search
    eos: Any = list(special.eos)
    rules: Any = sampling if search is None else search  # for the tokens that may come next
    # Of a search that was read from a folder, sampling has the lengths as they stand there.
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
        "min_length": None if least else sampling.min_length or None,  # over which it wins
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
