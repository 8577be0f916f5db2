"""Saving of generation settings in a file that transformers reads."""

from typing import Any

from jaxformer.interop.generation_fields import SEARCH, TOKENS
from jaxformer.interop.special_tokens import SpecialTokens


def generation_values(special: SpecialTokens) -> dict[str, Any]:
    """Content of `generation_config.json`."""
    sampling, search = special.sampling, special.search
    rules: Any = sampling if search is None else search  # has the constraints on the next token
    # For a search read from a folder, `sampling` has the lengths as the folder states them.
    least = sampling.min_new_tokens or (0 if sampling.min_length else rules.min_new_tokens)
    penalty = sampling.repetition_penalty
    values: dict[str, Any] = {
        "eos_token_id": one_or_list(special.eos),
        **{name: getattr(special, ours) for name, ours in TOKENS.items()},
        # transformers lets bad words end a text, but not suppressed tokens.
        "bad_words_ids": [[id] for id in special.forbidden if id not in special.eos] or None,
        "suppress_tokens": [id for id in special.forbidden if id in special.eos] or None,
        "renormalize_logits": special.renormalize or None,
        "max_length": special.max_length,
        "max_new_tokens": special.max_new_tokens,
        "no_repeat_ngram_size": rules.no_repeat_ngram_size or None,
        "min_new_tokens": least or None,
        "min_length": None if least else sampling.min_length or None,  # min_new_tokens wins
        "repetition_penalty": None if penalty == 1 else penalty,
        "do_sample": sampling.temperature > 0,
    }
    if sampling.temperature > 0:
        values |= {
            "temperature": sampling.temperature,
            "top_k": sampling.top_k or 0,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
        }
    if search is not None:
        values |= {name: getattr(search, ours) for name, ours in SEARCH.items()}
    values = {**special.without_effect, **values}
    stated = {name: value for name, value in values.items() if value is not None}
    return {**stated, **special.unsupported}


def one_or_list(ids: tuple[int, ...]) -> int | list[int] | None:
    """Value of a field for one token or several; null for none."""
    return ids[0] if len(ids) == 1 else list(ids) or None
