"""Tokenizers as the files that transformers reads."""

import json
import pathlib
from typing import Any

from jaxformer.errors import ConfigError
from jaxformer.interop.chat_templates import HuggingFaceChatTemplate
from jaxformer.interop.special_tokens import SpecialTokens
from jaxformer.storage import write_whole
from jaxformer.text import Tokenizer

__all__ = ["write_tokenizer"]


def write_tokenizer(
    folder: pathlib.Path,
    tokenizer: Tokenizer,
    special: SpecialTokens,
    chat_template: HuggingFaceChatTemplate | None = None,
    *,
    has_token_types: bool = False,
) -> None:
    """Writes `tokenizer.json` and `tokenizer_config.json`.

    Two things are only in `Tokenizer`, and transformers does otherwise: rules of normalization that
    the library's step cannot apply, as of several marks on a letter, and pieces that Marian's
    vocabulary lacks.

    Args:
        folder: to write to, which exists.
        tokenizer: of a model.
        special: its special tokens, of which the names are written.
        chat_template: of conversations, written where it is given.
        has_token_types: whether the model is given types of tokens, as BERT is.

    Raises:
        ConfigError: the tokenizer has no token of an id that is special.
        StorageError: a file cannot be written.

    Example:
        >>> import tempfile
        >>> from jaxformer.text import byte_tokenizer
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> write_tokenizer(folder, byte_tokenizer(), SpecialTokens(eos=(256,)))
        >>> json.loads((folder / "tokenizer_config.json").read_text())["eos_token"]
        '<|endoftext|>'
    """
    state, end = json.loads(tokenizer.to_json()), tokenizer.end_of_text
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    if not has_token_types:  # of which transformers makes some otherwise
        config["model_input_names"] = ["input_ids", "attention_mask"]
    eos = special.eos[0] if special.eos else end
    for role, token_id in (("bos", special.bos), ("eos", eos), ("pad", special.pad)):
        if token_id is None:
            continue
        if token_id >= tokenizer.vocab_size:
            raise ConfigError(
                f"the {role} token of the special tokens is {token_id}, which the tokenizer with "
                f"its {tokenizer.vocab_size} tokens lacks; save the tokenizer that they are of"
            )
        config[f"{role}_token"] = tokenizer.token_name(token_id)
    if tokenizer.mask is not None:
        config["mask_token"] = tokenizer.token_name(tokenizer.mask)
    if chat_template is not None:
        # What the template calls its tokens; the tokenizer has the same.
        config |= chat_template.names
        config["chat_template"] = chat_template.template
    write_whole(folder / "tokenizer.json", json.dumps(state, ensure_ascii=False, indent=2))
    write_whole(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")
