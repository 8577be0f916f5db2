"""Config of one source of a mixture."""

import dataclasses
import math

from jaxformer.config.checks import require, require_types
from jaxformer.errors import ConfigError

__all__ = ["MixtureSourceConfig"]

_MAX_NAME = 60  # characters, in tables and names of metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixtureSourceConfig:
    """One source of a mixture: its files and their weight.

    Args:
        name: name of the source in reports and metrics, 1 to 60 printable characters.
        paths: files or glob patterns of the source, in the formats of data.paths for "files".
        weight: weight of the source; its share of the training sequences is its weight divided by
            the sum of all weights.
        field: name of the JSON key, or the Parquet or Arrow column, that holds the text.

    Raises:
        ConfigError: the name is empty, too long or not printable, there is no path, or the weight
            is not positive and finite.

    Example:
        >>> MixtureSourceConfig(name="code", paths=("code/**/*.py",), weight=1).field
        'text'
    """

    name: str
    paths: tuple[str, ...]
    weight: float
    field: str = "text"

    def __post_init__(self) -> None:
        require_types(self)
        require(
            0 < len(self.name) <= _MAX_NAME and self.name.isprintable() and bool(self.name.strip()),
            f"name of a source of data.mixture must be 1 to {_MAX_NAME} printable characters",
            name=self.name,
        )
        where = f"source {self.name!r} of data.mixture"
        if not isinstance(self.paths, tuple) or not self.paths:
            raise ConfigError(
                f"{where} must have paths, files or patterns, got paths={self.paths!r}; name one, "
                "or leave the source out"
            )
        if not 0 < self.weight < math.inf:
            raise ConfigError(
                f"{where} must have a weight that is positive and finite, got weight="
                f"{self.weight!r}; to leave the source out, remove its table"
            )
