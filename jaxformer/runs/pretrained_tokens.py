"""Tokenizers and decoding tokens of a Hugging Face folder."""

import os
import pathlib
from typing import Any

from jaxformer.config import BeamSearchConfig
from jaxformer.errors import DataError
from jaxformer.interop import HuggingFaceFolder, SpecialTokens, Tokenizers, open_huggingface
from jaxformer.interop.hub import is_model_id
from jaxformer.runs.decoding_tokens import DecodingTokens
from jaxformer.runs.folder import is_run

__all__ = ["decoding_of", "is_pretrained", "read_tokens", "required"]

# Search settings, by our names, with their names in transformers.
_OF_SEARCHES = {
    "length_penalty": "length_penalty", "early_stopping": "early_stopping",
    "num_best": "num_return_sequences",
}  # fmt: skip
_NEW_TOKENS = 256  # of a continuation, if the folder does not say


def is_pretrained(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a Hugging Face folder, or could be a model id: OWNER/MODEL."""
    folder = pathlib.Path(path)
    if os.path.lexists(folder):
        return os.path.lexists(folder / "config.json") and not is_run(folder)
    return is_model_id(folder)


def required(tokenizers: Tokenizers | None, folder: pathlib.Path) -> Tokenizers:
    """The tokenizers of a folder; DataError if it has none."""
    if tokenizers is None:
        raise DataError(
            f"{folder} must have a tokenizer, such as tokenizer.json, got none; download it, too"
        )
    return tokenizers


def decoding_of(opened: HuggingFaceFolder, special: SpecialTokens) -> DecodingTokens:
    """Tokens for decoding a model."""
    family = opened.family.model_type
    if opened.kind not in ("decoder", "encoder_decoder"):
        return DecodingTokens(
            stop=special.eos, bos=special.bos, pad=special.pad, model_type=family
        )  # fmt: skip
    translates, longest = opened.kind == "encoder_decoder", special.max_new_tokens
    if longest is None and translates and special.max_length is not None:
        longest = max(1, special.max_length - 1)  # max_length counts the start
    return DecodingTokens(
        start=special.decoder_start if translates else None,
        stop=special.eos,
        forbidden=special.forbidden,
        renormalize=special.renormalize,
        forced_first=special.forced_first if translates else None,
        forced_last=special.forced_last if translates else None,
        bos=special.bos,
        pad=special.pad,
        max_new_tokens=longest or (None if translates else _NEW_TOKENS),
        unsupported={**special.unsupported, **_without_option(special, translates)},
        model_type=family,
    )


def _without_option(special: SpecialTokens, translates: bool) -> dict[str, Any]:
    """Settings that have an option, but not for this kind of model."""
    settings: dict[str, Any] = {}
    if not translates:
        settings["forced_bos_token_id"] = special.forced_first
        settings["forced_eos_token_id"] = special.forced_last
        if (search := special.search) is not None:
            settings["num_beams"] = search.beam_size
            for ours, theirs in _OF_SEARCHES.items():
                if (value := getattr(search, ours)) != getattr(BeamSearchConfig(), ours):
                    settings[theirs] = value
    elif special.sampling.temperature > 0:  # and a search does not sample
        drawn = special.sampling
        settings = {"do_sample": True, "temperature": drawn.temperature, "top_k": drawn.top_k or 0}
        settings |= {"top_p": drawn.top_p, "min_p": drawn.min_p}
    if translates and special.sampling.repetition_penalty != 1:
        settings["repetition_penalty"] = special.sampling.repetition_penalty
    return {name: value for name, value in settings.items() if value is not None}


def read_tokens(path: str | os.PathLike[str]) -> tuple[Tokenizers, DecodingTokens]:
    """Tokenizers and decoding tokens of a folder."""
    opened = open_huggingface(path)
    found = required(opened.read_tokenizers(), opened.path)
    return found, decoding_of(opened, opened.read_special_tokens(found.target))
