"""What decoding needs of a model, the library's or a user's, and how it calls one."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional import platforms
from jaxformer.models.cache import computation_dtype, init_cache
from jaxformer.models.encoder_decoder import EncoderDecoder
from jaxformer.models.transformer import Transformer, TransformerOutput
from jaxformer.models.transformer_inputs import TransformerInputs
from jaxformer.modules.block import is_unchanged
from jaxformer.modules.execution import layer_execution
from jaxformer.modules.stacked_layers import Cache, split_layers

_KINDS = {"decoder": "a Decoder", "encoder_decoder": "an EncoderDecoder"}


def check_decodable(model: Any, params: Any, task: str, *architectures: str) -> None:
    """Raises ConfigError unless a model has one of the architectures, and params are plain."""
    config = getattr(model, "config", None) if isinstance(model, nn.Module) else None
    if not isinstance(config, ModelConfig) or config.architecture not in architectures:
        kinds = " or ".join(_KINDS[architecture] for architecture in architectures)
        is_kind = model is None or isinstance(model, type)
        got = repr(model) if is_kind else f"a {type(model).__name__}"
        if isinstance(model, ModelConfig):
            got += "; build a model from it, such as Decoder(config)"
        raise ConfigError(
            f"model: {task} needs {kinds}, got {got}; your own module needs a config, a "
            f"ModelConfig with architecture {' or '.join(map(repr, architectures))}"
        )
    if not isinstance(params, Mapping) or "params" in params:
        got = str(list(params)) if isinstance(params, Mapping) else f"a {type(params).__name__}"
        raise ConfigError(
            f'params must be only the parameters, model.init(...)["params"], got {got}'
        )


def scans_layers(model: nn.Module) -> bool:
    """Whether decoding runs the layers of a model in a scan: on accelerators, if the model does."""
    if platforms.default_platform() == "cpu" or layer_execution(model.config) == "loop":
        return False
    # Models and decoders of one's own know one cache for each layer.
    if model.config.has_cross_attention:
        return type(model) is EncoderDecoder
    return getattr(type(model), "hidden_states", None) is Transformer.hidden_states


def with_automatic_attention(model: nn.Module) -> nn.Module:
    """The model with attention_implementation "auto"."""
    # Attention over a cache is always "auto". This covers the rest: the encoder and the first
    # cross-attention, which may run on another platform than training did.
    config = dataclasses.replace(model.config, attention_implementation="auto")
    return model if config == model.config else model.clone(config=config)


def params_for_steps(model: nn.Module, params: Any) -> Any:
    """Parameters as steps with a cache read them: split into layers, unless they run in a scan."""
    return params if scans_layers(model) else split_layers(params)


def empty_cache(model: nn.Module, params: Any, num_rows: int, capacity: int) -> Cache:
    """Caches for decoding with a model, in the dtype that it computes in."""
    dtype = computation_dtype(model.config, params)
    return init_cache(model.config, num_rows, capacity, dtype=dtype, scanned=scans_layers(model))


def encode(model: nn.Module, sources: jax.Array, lengths: jax.Array) -> TransformerInputs:
    """The encoder's output for sources `[B, S]`, as inputs of the decoder."""
    encoded = model.encode(sources, lengths=lengths).hidden  # [B, S, D]
    return {"encoded": encoded, "encoded_lengths": lengths}


def decoder_states(
    model: nn.Module, tokens: jax.Array, inputs: TransformerInputs
) -> TransformerOutput:
    """Hidden states of new tokens `[B, T]`; ConfigError unless the decoder extends its cache."""
    decoder = model.decoder if model.config.has_cross_attention else model
    output: TransformerOutput = decoder.hidden_states(tokens, **inputs)
    cache = inputs.get("cache")
    if cache is not None and is_unchanged(output.cache, cache):
        got = "no cache" if output.cache is None else "the same cache"
        raise ConfigError(
            "hidden_states of model must return the given cache, extended by the new tokens, got "
            f"{got} from a {type(model).__name__}; return that of its layers"
        )
    return output
