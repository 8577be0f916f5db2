"""Tokenizers and decoding tokens of a Hugging Face folder."""

import dataclasses
import os
import pathlib
from typing import Any

from jaxformer.config import BeamSearchConfig
from jaxformer.errors import DataError
from jaxformer.interop import HuggingFaceFolder, SpecialTokens, Tokenizers, open_huggingface
from jaxformer.interop.hub import is_model_id
from jaxformer.runs.folder import is_run

__all__ = ["decoding_of", "is_pretrained", "read_tokens", "required"]

# Search settings, by our names, with their names in transformers.
_OF_SEARCHES = {
    "length_penalty": "length_penalty", "early_stopping": "early_stopping",
    "num_best": "num_return_sequences",
}  # fmt: skip
_GENERATING = ("decoder", "encoder_decoder")
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


def decoding_of(opened: HuggingFaceFolder, special: SpecialTokens) -> SpecialTokens:
    """Special tokens of a run, whose settings of sampling and search are in its config."""
    translates, generates = opened.kind == "encoder_decoder", opened.kind in _GENERATING
    longest = special.max_new_tokens or (_NEW_TOKENS if opened.kind == "decoder" else None)
    if longest is None and translates and special.max_length is not None:
        longest = max(1, special.max_length - 1)  # max_length counts the start
    changed: dict[str, Any] = {
        "max_length": None, "max_new_tokens": longest, "search": None,
        "sampling": SpecialTokens.sampling, "model_type": opened.family.model_type,
        "unsupported": _unsupported(special, translates) if generates else {},
    }  # fmt: skip
    if not translates:
        changed |= dict.fromkeys(("decoder_start", "forced_first", "forced_last"))
    return dataclasses.replace(special, **changed)


def _unsupported(special: SpecialTokens, translates: bool) -> dict[str, Any]:
    """Settings that have no option, or none for this kind of model."""
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
    settings = {name: value for name, value in settings.items() if value is not None}
    return {**special.unsupported, **settings}


def read_tokens(path: str | os.PathLike[str]) -> tuple[Tokenizers, SpecialTokens]:
    """Tokenizers and decoding tokens of a folder."""
    opened = open_huggingface(path)
    found = required(opened.read_tokenizers(), opened.path)
    return found, decoding_of(opened, opened.read_special_tokens(found.target))
