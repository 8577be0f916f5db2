"""The position scheme of a trained model, as arrays to look at."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange

from jaxformer.config import ModelConfig
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
        encoder-decoder. Positions that `config.layers` override have the name of the first layer
        with them, such as "model_layer_2".

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
    if "encoder" not in params:
        schemes = _stack_schemes("model", config, params, length)
    elif "decoder" not in params:
        schemes = _stack_schemes("model", config, params["encoder"], length, causal=False)
    elif all(layer.positions is None for layer in config.layer_overrides) and (
        config.positions.kind in ("sinusoidal", "rotary")
    ):  # those of the encoder have no parameters, and equal the decoder's
        schemes = _stack_schemes("model", config.encoder, params["encoder"], length, causal=False)
    else:
        schemes = _stack_schemes("encoder", config.encoder, params["encoder"], length, causal=False)
        schemes |= _stack_schemes("decoder", config, params["decoder"], length)
    if not schemes:
        raise ConfigError("the model has no positions to show: its config has positions='none'")
    return schemes


def _stack_schemes(
    name: str, config: ModelConfig, params: Any, length: int, *, causal: bool = True
) -> dict[str, Positions]:
    """Positions of one stack: the model's, and those of layers with their own."""
    overrides = [layer.positions for layer in config.layer_overrides]
    configs, modules = {name: config}, {name: "positions"}
    for index, positions in enumerate(
        dict.fromkeys(scheme for scheme in overrides if scheme is not None)
    ):
        part = f"{name}_layer_{overrides.index(positions)}"
        configs[part] = dataclasses.replace(config, positions=positions, layers=(), first_layers=())
        modules[part] = f"layer_positions_{index}"
    if None not in overrides:
        del configs[name]
    return {
        part: _scheme_positions(part_config, params.get(modules[part], {}), length, causal)
        for part, part_config in configs.items()
        if part_config.positions.kind != "none"
    }


def _scheme_positions(config: ModelConfig, params: Any, length: int, causal: bool) -> Positions:
    """Evaluates the model's own position scheme."""
    scheme = make_positions(config, causal=causal)
    kind = config.positions.kind
    variables = {"params": jax.tree.map(jnp.asarray, params)}
    positions = jnp.arange(length)[None]
    if isinstance(scheme, RotaryPositions):
        features, width = np.arange(config.key_dim), scheme.scheme.rotary_dim or config.key_dim
        is_half = scheme.scheme.layout == "half"
        is_first = features < width // 2 if is_half else (features % 2 == 0) & (features < width)
        # A pair (1, 0) becomes (cos, sin).
        pairs = jnp.broadcast_to(jnp.float32(is_first), (1, length, 1, config.key_dim))
        rotate = scheme.apply(variables, positions, config.max_len, method=type(scheme).rotation)
        turned = np.asarray(rotate(pairs, pairs)[0][0, :, 0])
        return Positions(
            kind, np.stack([turned[:, is_first], turned[:, ~is_first & (features < width)]])
        )
    encoding = scheme.apply(variables, positions, method=type(scheme).encoding)
    if encoding is not None:
        return Positions(kind, np.asarray(encoding[0], np.float32))
    num_keys = length if causal else 2 * length - 1
    value: AlibiBias | RelativeBias = scheme.apply(
        variables, 1, num_keys, length - 1, method=type(scheme).bias
    )
    bias = rearrange(value.array(1, num_keys, length - 1), "n 1 s -> n s")
    return Positions(kind, np.asarray(bias, np.float32), np.arange(num_keys) - (length - 1))
