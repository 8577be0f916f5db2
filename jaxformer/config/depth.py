"""Rules of a config for its depth: settings that change with a power of the number of layers."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from jaxformer.config.checks import Config, Key, PositiveInt, keys_of, within
from jaxformer.config.reading import config_from_dict, config_keys, suggested_keys, with_values
from jaxformer.errors import ConfigError

_LAYERS = "model.num_layers"
_DIGITS = 4  # of numbers that are not whole, so that the settings of a run can be read


@dataclasses.dataclass(frozen=True, kw_only=True)
class DepthRule(Config):
    """Rule of a setting: it is multiplied by (depth / num_layers of the file) ** power.

    The setting in the file is its value at model.num_layers of the file. Whole numbers are rounded
    to the nearest multiple of multiple_of, but not to 0, and other numbers to four digits.

    Args:
        power: exponent of the depth, from -10 to 10: 1 for a setting proportional to the depth.
        multiple_of: for whole numbers: number that divides the result.

    Example:
        >>> DepthRule(power=1.5, multiple_of=64).multiple_of
        64
    """

    power: Annotated[float, within(-10, 10)]
    multiple_of: PositiveInt = 1


def at_depth(tables: Mapping[str, Any], depth: PositiveInt | None) -> dict[str, Any]:
    """Tables of a config at a depth, by the rules of its table [by_depth], which is left out."""
    tables = dict(tables)
    rules = tables.pop("by_depth", None)
    depth = keys_of(at_depth)["depth"].checked(depth)
    if rules is None and depth is None:
        return tables
    if rules is None:
        raise ConfigError(
            f"depth needs the rules of a table [by_depth], got depth={depth} and no such table; "
            f"add it, or set {_LAYERS} and the settings that depend on it"
        )
    if not isinstance(rules, Mapping):
        raise ConfigError(f"by_depth must be a table, got {rules!r}")
    base = _value(tables, _LAYERS, config_keys()[_LAYERS])
    growth = 1.0 if depth is None else depth / base
    values = {dotted: _scaled(tables, dotted, rule, growth) for dotted, rule in rules.items()}
    # At its own depth a file says all settings itself, without rounding.
    return tables if growth == 1 else with_values(tables, {**values, _LAYERS: depth})


def _scaled(tables: Mapping[str, Any], dotted: str, values: Any, growth: float) -> float:
    """Value of a setting whose depth grows by a factor."""
    rule_name, key = f"by_depth.{dotted!r}", config_keys().get(dotted)
    if key is None:
        near = suggested_keys(dotted, config_keys())
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "remove it"
        raise ConfigError(f"{rule_name} is a rule for an unknown key; {hint}")
    if key.members[0] not in (int, float) or dotted == _LAYERS:
        raise ConfigError(
            f"{rule_name} must be a rule for a number other than {_LAYERS}, which is the depth; "
            "remove it"
        )
    if not isinstance(values, Mapping):
        raise ConfigError(f"{rule_name} must be a table such as {{ power = 1 }}, got {values!r}")
    try:
        rule = config_from_dict(DepthRule, values)
    except ConfigError as error:
        raise ConfigError(f"{rule_name}: {error}") from None
    value = _value(tables, dotted, key) * growth**rule.power
    if key.members[0] is int:
        return max(1, round(value / rule.multiple_of)) * rule.multiple_of
    if rule.multiple_of != 1:
        raise ConfigError(
            f"{rule_name}: multiple_of is for whole numbers, got {rule.multiple_of}; remove it"
        )
    return float(f"{value:.{_DIGITS}g}")


def _value(tables: Mapping[str, Any], dotted: str, key: Key) -> Any:
    """Value of a setting in the tables of a file."""
    value: Any = tables
    for name in dotted.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if value is None:
        raise ConfigError(
            f"the rules of [by_depth] start from {dotted} of the file, got none; add it"
        )
    return key._replace(name=dotted).checked(value)
