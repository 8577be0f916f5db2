"""Tokenizers and decoding tokens of a folder of Hugging Face."""

import os
import pathlib

from jaxformer.errors import DataError
from jaxformer.interop import HuggingFaceFolder, open_huggingface
from jaxformer.interop.generation_settings import SpecialTokens, special_token_ids
from jaxformer.interop.hub import is_model_id
from jaxformer.interop.tokenizer_files import load_tokenizers
from jaxformer.runs.decoding_tokens import DecodingTokens
from jaxformer.runs.folder import is_run
from jaxformer.text import Tokenizer, TokenRoles

__all__ = ["decoding_of", "is_pretrained", "read_tokens", "tokenizers_of"]

_MASKS = ("[MASK]", "<mask>")
_NEW_TOKENS = 256  # of a continuation, where the folder does not say


def is_pretrained(path: str | os.PathLike[str]) -> bool:
    """Tells whether a path is a folder of Hugging Face, or can be the id of one: OWNER/MODEL."""
    folder = pathlib.Path(path)
    if os.path.lexists(folder):
        return os.path.lexists(folder / "config.json") and not is_run(folder)
    return is_model_id(folder)


def tokenizers_of(opened: HuggingFaceFolder, special: SpecialTokens) -> tuple[Tokenizer, Tokenizer]:
    """Tokenizers of sources and of targets, mostly the same, that know what their tokens are for.

    Args:
        opened: the folder.
        special: its special tokens.

    Raises:
        DataError: the folder has no tokenizer, or one that cannot be used.
    """
    found = load_tokenizers(opened.path, opened.family.model_type)
    if found is None:
        raise DataError(
            f"{opened.path} must have a tokenizer, such as tokenizer.json, got none; download it "
            "as well"
        )
    source = _with_roles(found.source, special)
    return source, source if found.target is found.source else _with_roles(found.target, special)


def decoding_of(opened: HuggingFaceFolder, special: SpecialTokens) -> DecodingTokens:
    """Tokens that a model is decoded with."""
    if opened.kind not in ("decoder", "encoder_decoder"):
        return DecodingTokens()
    translates, longest = opened.kind == "encoder_decoder", special.max_new_tokens
    if longest is None and translates and special.max_length is not None:
        longest = max(1, special.max_length - 1)  # which counts the start
    return DecodingTokens(
        start=special.decoder_start if translates else None,
        stop=special.eos,
        forbidden=special.forbidden,
        forced_first=special.forced_first,
        forced_last=special.forced_last,
        max_new_tokens=longest or (None if translates else _NEW_TOKENS),
    )


def read_tokens(path: str | os.PathLike[str]) -> tuple[tuple[Tokenizer, Tokenizer], DecodingTokens]:
    """Tokenizers and decoding tokens of a folder."""
    opened = open_huggingface(path)
    special = special_token_ids(opened.path, opened.values)
    return tokenizers_of(opened, special), decoding_of(opened, special)


def _with_roles(tokenizer: Tokenizer, special: SpecialTokens) -> Tokenizer:
    end = tokenizer.token_name(special.eos[0]) if special.eos else TokenRoles.end_of_text
    masks = [name for name in _MASKS if tokenizer.special_id(name) is not None]
    return tokenizer.with_roles(
        TokenRoles(end_of_text=end, mask=[*masks, TokenRoles.mask][0], framed=True)
    )
