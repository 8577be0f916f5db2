"""The position scheme of a trained model, as arrays to look at."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange

from jaxformer.config import ModelConfig, RotaryConfig
from jaxformer.errors import ConfigError
from jaxformer.functional import AlibiBias, RelativeBias
from jaxformer.modules import RotaryPositions, make_positions


class Positions(NamedTuple):
    """A position scheme.

    Args:
        kind: kind of positions.
        values: float32. "sinusoidal", "learned": encodings that are added to the embeddings,
            `[T, D]`. "rotary": cosine and sine of the angle of each pair of features,
            `[2, T, H/2]`. "alibi", "relative": biases of the scores of each head, `[N, K]`.
        distances: int `[K]`, of biases: the key's position minus the query's, in tokens; never
            positive for a decoder, which does not attend to later keys.
    """

    kind: str
    values: np.ndarray
    distances: np.ndarray | None = None


def model_positions(config: ModelConfig, params: Any, length: int) -> dict[str, Positions]:
    """Extracts the position scheme of a model.

    Args:
        config: the model's config.
        params: the model's parameters.
        length: number of positions, from 0; for a bias, number of distances.

    Returns:
        The positions by name: "model", or "encoder" and "decoder" if they differ in an
        encoder-decoder. Positions that `config.layers` override are left out.

    Raises:
        ConfigError: the model has no positions, or fewer.

    Example:
        >>> config = ModelConfig(
        ...     max_len=8, num_layers=1, d_model=4, num_heads=2, positions="sinusoidal"
        ... )
        >>> model_positions(config, {}, 3)["model"].values.shape
        (3, 4)
    """
    if not 1 <= length <= config.max_len:
        raise ConfigError(
            f"the length to show must be in 1 .. max_len={config.max_len}, got {length}"
        )
    if config.positions.kind == "none":
        raise ConfigError("the model has no positions to show: its config has positions='none'")
    if all(layer.positions is not None for layer in config.layer_overrides):
        raise ConfigError("the model has no positions to show: each layer has its own")
    if "encoder" not in params:
        return {"model": _stack_positions(config, params, length)}
    if "decoder" not in params:
        return {"model": _stack_positions(config, params["encoder"], length, causal=False)}
    encoder = _stack_positions(config.encoder, params["encoder"], length, causal=False)
    if config.positions.kind in ("sinusoidal", "rotary"):  # without parameters or a direction
        return {"model": encoder}
    return {"encoder": encoder, "decoder": _stack_positions(config, params["decoder"], length)}


def _stack_positions(
    config: ModelConfig, params: Any, length: int, *, causal: bool = True
) -> Positions:
    """Evaluates the position scheme of an encoder or a decoder."""
    kind = config.positions.kind
    if isinstance(config.positions, RotaryConfig):  # the layout only says where pairs are
        halves = dataclasses.replace(config.positions, layout="half")
        config = dataclasses.replace(config, positions=halves)
    scheme = make_positions(config, causal=causal)
    variables = {"params": jax.tree.map(jnp.asarray, params.get("positions", {}))}
    positions = jnp.arange(length)[None]
    if isinstance(scheme, RotaryPositions):
        half = (scheme.scheme.rotary_dim or config.key_dim) // 2
        # A pair (1, 0) becomes (cos, sin).
        pairs = jnp.zeros((1, length, 1, config.key_dim)).at[..., :half].set(1)
        rotate = scheme.apply(variables, positions, config.max_len, method=type(scheme).rotation)
        turned = np.asarray(rotate(pairs, pairs)[0][0, :, 0])
        return Positions(kind, np.stack([turned[:, :half], turned[:, half : 2 * half]]))
    encoding = scheme.apply(variables, positions, method=type(scheme).encoding)
    if encoding is not None:
        return Positions(kind, np.asarray(encoding[0], np.float32))
    num_keys = length if causal else 2 * length - 1
    value: AlibiBias | RelativeBias = scheme.apply(
        variables, 1, num_keys, length - 1, method=type(scheme).bias
    )
    bias = rearrange(value.array(1, num_keys, length - 1), "n 1 s -> n s")
    return Positions(kind, np.asarray(bias, np.float32), np.arange(num_keys) - (length - 1))
