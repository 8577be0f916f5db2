"""Fields that map one to one to keys of `ModelConfig`: one table reads and writes them."""

from collections.abc import Callable, Mapping
from typing import Any

from jaxformer.config import ModelConfig
from jaxformer.config.checks import field_types, union_members
from jaxformer.interop.conversion.config_fields import ConfigFields

__all__ = ["PlainFields", "read_plain", "whole", "write_plain"]

PlainFields = Mapping[str, str | tuple[str, Any]]
"""Keys of `ModelConfig` by field name; optionally with the default of a missing field."""

# Values to write for keys that may be None.
_FILLED: Mapping[str, Callable[[ModelConfig], float]] = {
    "num_encoder_layers": lambda model: model.num_encoder_layers or model.num_layers,
    "num_kv_heads": lambda model: model.kv_heads,
    "head_dim": lambda model: model.key_dim,
    "d_ff": lambda model: model.ff_dim,
    "attention_scale": lambda model: model.attention_scale or model.key_dim**-0.5,
    "embedding_scale": lambda model: model.embedding_factor,
}


def read_plain(fields: ConfigFields, table: PlainFields) -> dict[str, Any]:
    """Reads the keys of a table from the fields of a config.

    Example:
        >>> fields = ConfigFields({"n_embd": 8}, "config.json")
        >>> read_plain(fields, {"n_embd": "d_model", "n_positions": ("max_len", 1024)})
        {'d_model': 8, 'max_len': 1024}
    """
    values = {}
    for name, entry in table.items():
        key, default = (entry, ...) if isinstance(entry, str) else entry
        kind = union_members(field_types(ModelConfig)[key])[0]
        value = fields.take(name, kind, default)
        values[key] = float(value) if kind is float else value
    return values


def write_plain(model: ModelConfig, table: PlainFields) -> dict[str, Any]:
    """Writes the fields of a table for a model.

    Example:
        >>> model = ModelConfig(max_len=16, num_layers=2, d_model=8, num_heads=2)
        >>> write_plain(model, {"n_embd": "d_model", "n_inner": "d_ff"})
        {'n_embd': 8, 'n_inner': 32}
    """
    keys = {name: entry if isinstance(entry, str) else entry[0] for name, entry in table.items()}
    return {
        name: _FILLED[key](model) if key in _FILLED else getattr(model, key)
        for name, key in keys.items()
    }


def whole(number: float) -> float | int:
    """Rounds a computed number to an integer if it is close to one."""
    return round(number) if abs(number - round(number)) < 1e-6 * number else number
