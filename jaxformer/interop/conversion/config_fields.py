"""Strict reading of a `config.json`: every field that transformers reads is used or refused."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

from jaxformer.config.checks import suggestion
from jaxformer.errors import ConfigError

ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
"""Interpretation of a classifier's logits: softmax, sigmoid each, or unchanged."""
PROBLEM_TYPES: tuple[ProblemType, ...] = get_args(ProblemType)

# Fields of every config that do not change what a model computes when it is used.
_INERT = frozenset({
    # Origin of the file, and how transformers returns results.
    "_name_or_path", "_commit_hash", "transformers_version", "model_type", "architectures",
    "auto_map", "tokenizer_class", "use_cache", "output_attentions", "output_hidden_states",
    "return_dict", "torchscript", "torch_dtype", "dtype", "gradient_checkpointing",
    "_attn_implementation", "_attn_implementation_autoset", "attn_implementation",
    "chunk_size_feed_forward", "is_encoder_decoder", "language", "license", "tags",
    # Training and its losses.
    "initializer_range", "init_std", "problem_type", "finetuning_task", "task_specific_params",
    "use_bfloat16", "_num_labels", "num_labels", "summary_activation", "summary_proj_to_labels",
    "summary_type", "summary_use_proj",
    # Generation, which has its own file and arguments.
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id",
    "mask_token_id", "unk_token_id", "prefix", "max_length", "min_length", "do_sample",
    "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k",
    "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores",
    "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id",
    "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
    "begin_suppress_tokens", "decoder_start_token_id", "force_bos_token_to_be_generated",
    "tf_legacy_loss", "id2label", "label2id",
})  # fmt: skip

_DROPOUT = re.compile("dropout|pdrop|layerdrop")  # in the names of fields; it only acts in training

# Fields of every config in transformers, with the only supported value.
_FIXED: dict[str, Any] = {
    "pruned_heads": {}, "add_cross_attention": False, "cross_attention_hidden_size": None,
    "tie_encoder_decoder": False, "quantization_config": None, "per_layer_config": None,
    "is_causal": True,
}  # fmt: skip


# Newest version (major, minor) of transformers that the families were compared with. In 5.24, UMT5
# began to read scale_decoder_outputs, and so does the code here.
_COMPARED = (5, 24)


class ConfigFields:
    """Fields of a `config.json`."""

    # A family takes, requires or skips every field that its code in transformers reads; a parity
    # test checks this. So other fields cannot change what the model computes, except in files of a
    # newer transformers, whose code may read them: `finish` refuses them.

    def __init__(
        self,
        values: Mapping[str, Any],
        where: str,  # path of the file, for messages
        ignore: Collection[str] = (),  # fields that the user knows to be irrelevant
        tensors: Collection[str] = (),  # names in the checkpoint
    ) -> None:
        self._values = dict(values)
        self._version = values.get("transformers_version")
        self._filled: dict[str, Any] = {}
        self._where = where
        self._ignore = frozenset(ignore)
        self._tensors = frozenset(tensors)
        inert = _INERT | self._ignore
        self._left = {n for n in values if n not in inert and not _DROPOUT.search(n)}
        for name, only in _FIXED.items():
            self.require(name, only)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def inner(self, values: Mapping[str, Any], name: str) -> "ConfigFields":
        """Fields of a nested table, with the same fields to ignore."""
        version = {"transformers_version": self._version}
        return ConfigFields({**version, **values}, f"{name} of {self._where}", self._ignore)

    def has_tensor(self, name: str) -> bool:
        """Whether the checkpoint has a tensor of this name."""
        return name in self._tensors

    def num_classes(self) -> int:
        """Number of classes: that of their names, or 2 if there are no names."""
        names = self.take("id2label", dict, {})
        count: int = self.take("num_labels", int, len(names) or 2)
        # The softmax of a single class would always be 1.
        self.require("problem_type", None, *PROBLEM_TYPES[count == 1 :])
        return count

    def fill(self, **values: Any) -> None:
        """Sets the family's defaults of missing or null fields."""
        self._filled = values

    def take(self, name: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        """Value of a field of this type, or transformers' default; without one, it is required."""
        self._left.discard(name)
        value = self._values.get(name)
        value = self._filled.get(name) if value is None else value
        if value is None:
            if default is ...:
                raise ConfigError(
                    f"{self._where} must have {name}"
                    f"{suggestion(name, self._values)}; use the file that came with the weights"
                )
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        kinds = (*kinds, int) if float in kinds else kinds  # int counts as float
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join(choice.__name__ for choice in kinds)
            raise ConfigError(f"{self._where}: {name} must be {names}, got {value!r}")
        return value

    def optional(self, name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """Value of a field for which null means None, not the default."""
        if name in self._values and self._values[name] is None:
            self._left.discard(name)
            return None
        return self.take(name, kind, default)

    def require(self, name: str, *allowed: Any) -> None:
        """Refuses a field with any other value; the first of those allowed is the default."""
        self._left.discard(name)
        value = self._values.get(name, allowed[0])
        if value is not None and not any(value == a and type(value) is type(a) for a in allowed):
            raise ConfigError(
                f"{self._where}: {name}={value!r} changes what the model computes and is not "
                f"supported, only {' or '.join(map(repr, allowed))}"
            )

    def choose(self, name: str, choices: Mapping[Any, Any], default: Any = ...) -> Any:
        """Translates a field's value; ConfigError if it is not among the choices."""
        value = self.take(name, (str, bool, int, float), default)
        if value not in choices:
            self.require(name, *choices)
        return choices[value]

    def skip(self, *names: str) -> None:
        """Marks fields that do not change what the model computes."""
        self._left.difference_update(names)

    def override(self, **values: Any) -> None:
        """Sets values that override those of the file."""
        self._values |= values
        self._left -= values.keys()

    def finish(self) -> None:
        """Refuses fields that were neither taken nor marked, in a file of a newer transformers."""
        written = re.match(r"(\d+)\.(\d+)", str(self._version))
        if self._left and written and (int(written[1]), int(written[2])) > _COMPARED:
            raise ConfigError(
                f"{self._where} was written by transformers {self._version} and has unknown "
                f"fields, which may change what the model computes: {', '.join(sorted(self._left))}"
                f"; for those that do not, pass ignore=({min(self._left)!r},)"
            )
