"""Entries of a family's table of config fields: each reads one field, and writes it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxformer.config import ModelConfig
from jaxformer.config.checks import keys_of
from jaxformer.interop.conversion.config_fields import ConfigFields

Values = dict[str, Any]
"""Arguments of a `ModelConfig`."""

PLAIN = {
    "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "relu": "relu", "relu2": "relu2", "silu": "silu", "swish": "silu",
}  # fmt: skip
"""Activations of a feed-forward layer without a gate, by their Hugging Face names."""
GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_pytorch_tanh": "geglu_tanh"}
"""Activations of a feed-forward layer with a gate."""


def filled_values(model: ModelConfig) -> Values:
    """Keys that may be None, or that others set, with the values that count."""
    return {
        "num_encoder_layers": model.num_encoder_layers or model.num_layers,
        "num_kv_heads": model.kv_heads,
        "head_dim": model.key_dim,
        "value_head_dim": model.value_dim,
        "d_ff": model.ff_dim,
        "embedding_dim": model.table_dim,
        "attention_scale": model.attention_scale or model.key_dim**-0.5,
        "logit_scale": model.logit_scale or 1.0,
        "embedding_scale": model.embedding_factor,
        "num_token_types": model.num_token_types or 1,
        "use_bias": model.has_bias("qkv"),
        "qkv_bias": model.has_bias("qkv"),
        "attention_output_bias": model.has_bias("attention_output"),
        "feed_forward_bias": model.has_bias("feed_forward"),
        "norm_bias": model.has_bias("norm"),
    }


class Field(NamedTuple):
    """Reader of a field, given the values read so far, and its writer (None: not written)."""

    read: Callable[[ConfigFields, str, Values], Values]
    write: Callable[[ModelConfig], Any] | None = None


FieldTable = Mapping[str, Field | str | tuple[str, Any]]
"""Entries by field name; a key of `ModelConfig`, or it and its default, is short for `key`."""


def default_head_dim(values: Values) -> int:
    """Width of a head where the file has none; `ModelConfig` refuses a model without heads."""
    return values["d_model"] // max(1, values["num_heads"])


COMMON: FieldTable = {
    "vocab_size": "vocab_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "d_model",
}
"""Fields that most families have."""


def as_field(entry: Field | str | tuple[str, Any]) -> Field:
    """The field of an entry."""
    if isinstance(entry, Field):
        return entry
    return key(entry) if isinstance(entry, str) else key(*entry)


def key(name: str, default: Any = ..., *, null: bool = False) -> Field:
    """A field with the value of one key of `ModelConfig`; if `null`, null means None."""
    # The default may be a function of the values read so far.
    kind = keys_of(ModelConfig)[name].members[0]

    def read(fields: ConfigFields, field: str, values: Values) -> Values:
        default_value = default(values) if callable(default) else default
        value = (fields.optional if null else fields.take)(field, kind, default_value)
        return {name: float(value) if kind is float and not null else value}

    return Field(read, lambda model: (vars(model) | filled_values(model))[name])


def activation(default: str, names: Mapping[str, str] = PLAIN) -> Field:
    """The activation; one without a name is written as the first, and refused when compared."""

    def write(model: ModelConfig) -> str:
        matches = (name for name, value in names.items() if value == model.activation)
        return next(matches, next(iter(names)))

    return Field(
        lambda fields, field, _: {"activation": fields.choose(field, names, default)}, write
    )


def switch(name: str, on: Any, off: Any, default: bool = True) -> Field:
    """A flag that stands for one of two values of a key."""
    return Field(
        lambda fields, field, _: {name: on if fields.take(field, bool, default) else off},
        lambda model: getattr(model, name) == on,
    )


def biases(default: bool) -> Field:
    """The flag for biases in all projections of attention."""
    return Field(
        lambda fields, field, _: dict.fromkeys(
            ("qkv_bias", "attention_output_bias"), fields.take(field, bool, default)
        ),
        lambda model: model.has_bias("qkv"),
    )


def window(default: int | None = None) -> Field:
    """`sliding_window` of a family with the same window, or none, in all layers."""

    def read(fields: ConfigFields, field: str, _: Values) -> Values:
        size = fields.optional(field, int, default)
        return {"local_window_size": None if size is None else size - 1}

    def write(model: ModelConfig) -> int | None:
        return None if model.local_window_size is None else model.local_window_size + 1

    return Field(read, write)


def only(*allowed: Any, write: Callable[[ModelConfig], Any] | None = None) -> Field:
    """A field that may only have these values, or functions of the values read so far."""

    def read(fields: ConfigFields, field: str, values: Values) -> Values:
        fields.require(
            field, *(option(values) if callable(option) else option for option in allowed)
        )
        return {}

    return Field(read, write)


TIED: FieldTable = {"tie_word_embeddings": only(True, write=lambda model: model.tied_embeddings)}
"""The field of a family whose output projection is always the embedding table."""


def whole(number: float) -> float | int:
    """Rounds a computed number to an integer if it is close to one."""
    return round(number) if abs(number - round(number)) < 1e-6 * number else number
