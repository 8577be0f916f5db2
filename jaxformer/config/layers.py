"""Overrides for single layers, and the checks of layer patterns."""

import dataclasses
import typing
from collections.abc import Mapping

from jaxformer.config.checks import require_at_least_zero, require_types
from jaxformer.config.kinds import resolve_kinds
from jaxformer.config.positions import PositionsConfig
from jaxformer.errors import ConfigError

__all__ = ["LayerConfig", "check_layers"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """Overrides for one layer; keys that are not set take the model's value.

    Args:
        positions: position scheme of this layer's attention: "none", "rotary", "alibi" or
            "relative". In Python, a string such as "alibi" stands for that kind with its defaults.
        local_window_size: attention window of this layer: number of earlier tokens, and in an
            encoder also of later ones, that a token attends to besides itself. A layer cannot
            remove the model's window; if only some layers have one, set it for these and not for
            the model.
        attention: name of an attention function that is passed to the model in Python; if not set,
            or "dot_product", `dot_product_attention` of jaxformer.
        attention_norm: whether the layer has a norm before attention; false in the first layer of
            ModernBERT (Warner et al., 2024). Only in first_layers with norm_position "pre".

    Example:
        >>> LayerConfig(positions="alibi").positions
        AlibiConfig(kind='alibi')
    """

    positions: PositionsConfig | None = None
    local_window_size: int | None = None
    attention: str | None = None
    attention_norm: bool | None = None

    def __post_init__(self) -> None:
        require_types(self)
        resolve_kinds(self)
        require_at_least_zero(self, "local_window_size")
        if self.positions is not None and self.positions.acts_on == "embeddings":
            configs = typing.get_args(PositionsConfig)
            *others, last = [each.kind for each in configs if each.acts_on != "embeddings"]
            raise ConfigError(
                f"{self.positions.kind} positions are added to the embeddings once, so they cannot "
                f"differ by layer, got positions of kind {self.positions.kind!r}; set "
                f"model.positions instead, or use {', '.join(others)} or {last}"
            )


def check_layers(
    first: tuple[LayerConfig, ...],
    pattern: tuple[LayerConfig, ...],
    depths: Mapping[str, int],
    norm_position: str,
) -> None:
    """Checks the first layers and the pattern of a model.

    `depths` has the number of layers of each stack, by its key in `ModelConfig`.

    Raises:
        ConfigError: an entry is not a `LayerConfig`, there are too many, or two of them disagree.
    """
    for name, entries in (("first_layers", first), ("layers", pattern)):
        if not isinstance(entries, tuple) or any(type(e) is not LayerConfig for e in entries):
            raise ConfigError(
                f"{name} must be a tuple of LayerConfig, got {entries!r}; write "
                "(LayerConfig(...), ...)"
            )
    for name, depth in depths.items():
        if len(first) > depth:
            raise ConfigError(
                f"first_layers must be at most as many as {name}, got {len(first)} of them and "
                f"{name}={depth}; remove some, or raise {name}"
            )
        if len(pattern) > depth - len(first):
            raise ConfigError(
                f"the pattern in layers must be at most as long as the {name} after first_layers, "
                f"got {len(pattern)} in layers, {len(first)} in first_layers and {name}={depth}; "
                f"shorten the pattern, or raise {name}"
            )
    for entry in pattern:
        if entry.attention_norm is not None:
            raise ConfigError(
                "attention_norm is for first_layers, since layers of a pattern have the same "
                f"parameters, got attention_norm={entry.attention_norm} in layers; move that "
                "layer to first_layers"
            )
    given = [entry.attention_norm for entry in first]
    if any(norm is not None for norm in given) and norm_position != "pre":
        raise ConfigError(
            "attention_norm in first_layers is for norm_position 'pre', got norm_position="
            f"{norm_position!r}; remove attention_norm"
        )
    if len({norm is not False for norm in given}) > 1:
        raise ConfigError(
            "all first_layers must agree on attention_norm, since they have the same parameters, "
            f"got {given}; set it in each of them, or make only those first_layers that differ"
        )
