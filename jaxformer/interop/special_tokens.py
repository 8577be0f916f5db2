"""Special tokens of a model, and its generation settings."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.errors import ConfigError
from jaxformer.storage import shown


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
