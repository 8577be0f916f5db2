"""Strict reading of a `config.json`: every field that transformers reads is used or refused."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

from jaxformer.config.checks import suggestion
from jaxformer.errors import ConfigError

ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
"""Interpretation of a classifier's logits: softmax, sigmoid each, or unchanged."""
PROBLEM_TYPES: tuple[ProblemType, ...] = get_args(ProblemType)

# Fields of every config in transformers, with the only supported value.
_FIXED: dict[str, Any] = {
    "pruned_heads": {}, "add_cross_attention": False, "cross_attention_hidden_size": None,
    "tie_encoder_decoder": False, "per_layer_config": None, "is_causal": True,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ConfigFields:
    """Fields of a `config.json`."""

    # A family takes or requires every field that changes what its code in transformers 5.24
    # computes; a parity test changes each. In 5.24, UMT5 began to read scale_decoder_outputs.

    values: Mapping[str, Any]
    where: str  # path of the file, for messages
    tensors: Collection[str] = ()  # names in the checkpoint
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of missing fields

    def inner(self, values: Mapping[str, Any], name: str) -> "ConfigFields":
        """Fields of a nested table."""
        return ConfigFields(values, f"{name} of {self.where}")

    def changed(self, **values: Any) -> "ConfigFields":
        """The fields, of which these have other values."""
        return dataclasses.replace(self, values={**self.values, **values})

    def require_common(self) -> None:
        """Refuses what no model here has, in fields of every config."""
        for name, only in _FIXED.items():
            self.require(name, only)
        # Weights in MXFP4 are dequantized when they are read.
        if self.take("quantization_config", dict, {}).get("quant_method") != "mxfp4":
            self.require("quantization_config", None, {})

    def num_classes(self) -> int:
        """Number of classes: that of their names, or 2 if there are no names."""
        names = self.take("id2label", dict, {})
        count: int = self.take("num_labels", int, len(names) or 2)
        # The softmax of a single class would always be 1.
        self.require("problem_type", None, *PROBLEM_TYPES[count == 1 :])
        return count

    def take(self, name: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        """Value of a field of this type, or transformers' default; without one, it is required."""
        value = self.values.get(name)
        value = self.defaults.get(name) if value is None else value
        if value is None:
            if default is ...:
                raise ConfigError(
                    f"{self.where} must have {name}"
                    f"{suggestion(name, self.values)}; use the file that came with the weights"
                )
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        kinds = (*kinds, int) if float in kinds else kinds  # int counts as float
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join(choice.__name__ for choice in kinds)
            raise ConfigError(f"{self.where}: {name} must be {names}, got {value!r}")
        return value

    def optional(self, name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """Value of a field for which null means None, not the default."""
        if name in self.values and self.values[name] is None:
            return None
        return self.take(name, kind, default)

    def require(self, name: str, *allowed: Any) -> None:
        """Refuses a field with any other value; the first of those allowed is the default."""
        value = self.values.get(name, allowed[0])
        if value is not None and not any(value == a and type(value) is type(a) for a in allowed):
            raise ConfigError(
                f"{self.where}: {name}={value!r} changes what the model computes and is not "
                f"supported, only {' or '.join(map(repr, allowed))}"
            )

    def choose(self, name: str, choices: Mapping[Any, Any], default: Any = ...) -> Any:
        """Translates a field's value; ConfigError if it is not among the choices."""
        value = self.take(name, (str, bool, int, float), default)
        if value not in choices:
            self.require(name, *choices)
        return choices[value]
