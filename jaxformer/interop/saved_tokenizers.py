"""Saving of tokenizers in files that transformers reads."""

import json
import pathlib
from typing import Any

from jaxformer.interop.chat_templates import HuggingFaceChatTemplate
from jaxformer.interop.generation_config import SpecialTokens
from jaxformer.storage import write_whole
from jaxformer.text import Tokenizer


def write_tokenizer(
    folder: pathlib.Path,
    tokenizer: Tokenizer,
    special: SpecialTokens,
    chat_template: HuggingFaceChatTemplate | None = None,
    *,
    target: Tokenizer | None = None,  # of generated text, if it differs; has the special tokens
    has_token_types: bool = False,
) -> None:
    """Writes `tokenizer.json` and `tokenizer_config.json`; `has_token_types` as in BERT."""
    target = tokenizer if target is None else target
    # Two things get lost, so transformers tokenizes some rare texts differently: normalization
    # rules that the `tokenizers` library cannot apply, such as for several accents on a letter, and
    # pieces that Marian's vocabulary lacks.
    state = json.loads(tokenizer.to_json())
    if not tokenizer.roles.surrounded:  # the model was not trained with tokens around a text
        state["post_processor"] = None
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    types = ["token_type_ids"] if has_token_types else []
    config["model_input_names"] = ["input_ids", *types, "attention_mask"]
    eos = special.eos[0] if special.eos else None
    for role, token_id in (("bos", special.bos), ("eos", eos), ("pad", special.pad)):
        if token_id is None or token_id < 0:  # transformers' -1 is no token
            continue
        config[f"{role}_token"] = target.token_name(token_id)
    if tokenizer.mask is not None:
        config["mask_token"] = tokenizer.token_name(tokenizer.mask)
    if chat_template is not None:
        # The template's names of these tokens, which are the tokenizer's, too.
        config |= chat_template.names
        config["chat_template"] = chat_template.template
    write_whole(folder / "tokenizer.json", json.dumps(state, ensure_ascii=False, indent=2))
    write_whole(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")
