"""Position schemes: encodings added to embeddings, rotations of heads, and biases on scores."""

import dataclasses
import functools
from collections.abc import Callable

import jax
from flax import linen as nn

from jaxformer.config import (
    AlibiConfig,
    LearnedConfig,
    ModelConfig,
    NoPositionsConfig,
    PositionsConfig,
    RelativeConfig,
    RotaryConfig,
    SinusoidalConfig,
)
from jaxformer.functional.embedding import table_rows
from jaxformer.functional.multi_head import Rotation
from jaxformer.functional.positions.biases import (
    AlibiBias,
    PositionBias,
    RelativeBias,
    alibi_slopes,
)
from jaxformer.functional.positions.scaling import (
    LinearScaling,
    Llama3Scaling,
    LongropeScaling,
    RotaryScaling,
    YarnScaling,
)
from jaxformer.functional.positions.sinusoids import (
    apply_rotary,
    rotary_tables,
    sinusoidal_positions,
)
from jaxformer.modules.initializers import table_param


class Positions(nn.Module):
    """Base class of position schemes; a subclass overrides some of its methods.

    The base class itself means no positions. Pass your own scheme to a model as `position_scheme`.

    Example:
        >>> import jax.numpy as jnp
        >>> class Distance(Positions):
        ...     strength: float = 0.5
        ...
        ...     def bias(self, num_queries, num_keys, query_offset=0):
        ...         distance = jnp.arange(num_keys)[None] - jnp.arange(num_queries)[:, None]
        ...         return -self.strength * jnp.abs(distance - query_offset)[None, None]
        >>> Distance().apply({}, 2, 3, method=Distance.bias).shape
        (1, 1, 2, 3)
    """

    def encoding(self, positions: jax.Array) -> jax.Array | None:
        """Position vectors to add to the embeddings.

        Args:
            positions: integer `[B, T]`.

        Returns:
            float `[B, T, D]`, or None.
        """
        return None

    def rotation(self, positions: jax.Array, room: int) -> Rotation | None:
        """Function that rotates queries and keys; built once and applied in every layer.

        Args:
            positions: integer `[B, T]`, positions of queries and keys.
            room: maximum number of tokens in a row: T, or with a cache its capacity. Longrope
                scaling chooses its factors by it.

        Returns:
            A function that maps query `[B, T, N, H]` and key `[B, T, K, H]` to both, or None.
        """
        return None

    def bias(
        self, num_queries: int, num_keys: int, query_offset: int | jax.Array = 0
    ) -> jax.Array | PositionBias | None:
        """Bias on the attention scores; depends only on the order of the tokens in a row.

        Args:
            num_queries: T.
            num_keys: S.
            query_offset: index of the first query among the keys: int, or int `[B]`, one per row.

        Returns:
            float of rank 4 that broadcasts to `[B, N, T, S]`; an `AlibiBias` or `RelativeBias`,
            which attention computes block by block; or None.
        """
        return None


class _ConfiguredPositions(Positions):
    """A position scheme with settings from a config."""

    model: ModelConfig
    scheme: PositionsConfig
    causal: bool


class SinusoidalPositions(_ConfiguredPositions):
    """Sines and cosines added to the embeddings (Vaswani et al., 2017, section 3.5)."""

    scheme: SinusoidalConfig

    def encoding(self, positions: jax.Array) -> jax.Array:
        """`[B, T, D]`, without parameters; float32, or float64 with jax_enable_x64."""
        return sinusoidal_positions(
            positions + self.scheme.offset, self.model.d_model, base=self.scheme.base,
            layout=self.scheme.layout,
        )  # fmt: skip


class LearnedPositions(_ConfiguredPositions):
    """A learned vector for each of max_len positions, added to the embeddings."""

    scheme: LearnedConfig

    def setup(self) -> None:
        """Creates the table `[max_len, D]`."""
        model, axes = self.model, ("positions", "embed")
        self.table = table_param(self, "embedding", model, axes, model.max_len, model.d_model)

    def encoding(self, positions: jax.Array) -> jax.Array:
        """Rows of the table; positions outside it give NaN."""
        return table_rows(self.table, positions)


class RotaryPositions(_ConfiguredPositions):
    """Rotation of queries and keys by angles that grow with position (Su et al., RoFormer, 2021).

    The config's `scaling` extends them to longer texts.
    """

    scheme: RotaryConfig

    def rotation(self, positions: jax.Array, room: int) -> Rotation:
        """Rotation in the config's layout, by tables that are computed once for all layers."""
        scheme, rotated = self.scheme, self.scheme.rotary_dim
        tables = rotary_tables(
            positions, self.model.key_dim if rotated is None else rotated, base=scheme.base,
            scaling=_rotary_scaling(scheme, room),
        )  # fmt: skip
        turn = functools.partial(
            apply_rotary, tables=tables, layout=scheme.layout, rotary_dim=rotated
        )
        return lambda query, key: (turn(query), turn(key))


class AlibiPositions(_ConfiguredPositions):
    """Fixed penalty on the scores, linear in the distance (Press et al., ALiBi, 2022)."""

    scheme: AlibiConfig

    def bias(self, num_queries: int, num_keys: int, query_offset: int | jax.Array = 0) -> AlibiBias:
        """ALiBi with the published slopes."""
        return AlibiBias(alibi_slopes(self.model.num_heads))


class RelativePositions(_ConfiguredPositions):
    """Learned bias per head and distance bucket (Raffel et al., T5, 2020)."""

    scheme: RelativeConfig

    def setup(self) -> None:
        """Creates the table `[num_buckets, N]`."""
        shape = self.scheme.num_buckets, self.model.num_heads
        self.table = table_param(self, "table", self.model, (None, "heads"), *shape)

    def bias(
        self, num_queries: int, num_keys: int, query_offset: int | jax.Array = 0
    ) -> RelativeBias:
        """The table, with buckets of both directions unless attention is causal."""
        return RelativeBias(
            self.table, bidirectional=not self.causal, max_distance=self.scheme.max_distance
        )


_SCHEMES: dict[type, Callable[..., Positions]] = {
    NoPositionsConfig: _ConfiguredPositions,
    SinusoidalConfig: SinusoidalPositions,
    LearnedConfig: LearnedPositions,
    RotaryConfig: RotaryPositions,
    AlibiConfig: AlibiPositions,
    RelativeConfig: RelativePositions,
}

_SCALINGS: dict[str, Callable[..., RotaryScaling]] = {
    "linear": LinearScaling,
    "llama3": Llama3Scaling,
    "yarn": YarnScaling,
    "longrope": LongropeScaling,
}


def make_positions(model: ModelConfig, *, causal: bool) -> Positions:
    """Creates the position scheme of `model.positions`; causal: whether attention is causal.

    Example:
        >>> config = ModelConfig(max_len=8, num_layers=1, d_model=4, num_heads=2, positions="alibi")
        >>> scheme = make_positions(config, causal=True)
        >>> scheme.apply({}, 3, 3, method=scheme.bias).array(3, 3).shape
        (2, 3, 3)
    """
    return _SCHEMES[type(model.positions)](model, model.positions, causal)


def _rotary_scaling(config: RotaryConfig, room: int) -> RotaryScaling | None:
    if config.scaling is None:
        return None
    fields = dataclasses.asdict(config.scaling).items()
    values = {name: value for name, value in fields if value is not None}
    kind = values.pop("kind")
    if kind == "longrope":
        short_factor, long_factor = values.pop("short_factor"), values.pop("long_factor")
        values["factors"] = long_factor if room > values["original_max_len"] else short_factor
    return _SCALINGS[kind](**values)
