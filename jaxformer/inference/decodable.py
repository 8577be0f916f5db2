"""Requirements that decoding has of a model, the library's or a user's."""

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional import platforms
from jaxformer.models.encoder_decoder import EncoderDecoder
from jaxformer.models.transformer import Transformer, TransformerOutput
from jaxformer.models.transformer_inputs import TransformerInputs
from jaxformer.modules.block import is_unchanged
from jaxformer.modules.execution import layer_execution

_KINDS = {"decoder": "a Decoder", "encoder_decoder": "an EncoderDecoder"}
# Decoding calls these methods, not the model, because it needs a prompt's logits at one token only.
_METHODS = {"decoder": ("hidden_states", "logits"), "encoder_decoder": ("encode", "logits")}


def check_decodable(model: Any, task: str, *architectures: str, cached: bool = True) -> None:
    """Raises ConfigError unless a model has one of the architectures and supports decoding."""
    config = getattr(model, "config", None) if isinstance(model, nn.Module) else None
    name = type(model).__name__
    if not isinstance(config, ModelConfig) or config.architecture not in architectures:
        kinds = " or ".join(_KINDS[architecture] for architecture in architectures)
        got = repr(model) if model is None or isinstance(model, type) else f"a {name}"
        if isinstance(model, ModelConfig):
            got += "; build a model from it, such as Decoder(config)"
        raise ConfigError(
            f"model: {task} needs {kinds}, got {got}; your own module needs a config, a "
            f"ModelConfig with architecture {' or '.join(map(repr, architectures))}"
        )
    for method in _METHODS[config.architecture]:
        if not callable(getattr(type(model), method, None)):
            raise ConfigError(
                f"model must have a method {method}, like {_KINDS[config.architecture]}, got a "
                f"{name}, which has none; decoding calls it instead of the model itself"
            )
    if config.architecture == "decoder":
        names = ("lengths", "cache") if cached else ("lengths",)
        _check_takes(type(model).hidden_states, names, f"a {name}")
    try:
        hash(model)
    except TypeError as error:
        raise ConfigError(
            f"model must be hashable, as a static argument of jit, got a {name}: {error}; keep "
            "arrays in its parameters, or as tuples of numbers"
        ) from None


def reads_source(model: nn.Module) -> bool:
    """Whether a model is an encoder-decoder, which needs a source besides the prompt."""
    return bool(model.config.architecture == "encoder_decoder")


def scans_layers(model: nn.Module) -> bool:
    """Whether decoding runs the layers of a model in a scan: on accelerators, if the model does."""
    if platforms.default_platform() == "cpu" or layer_execution(model.config).name == "loop":
        return False
    # Models and decoders of one's own know one cache for each layer.
    if reads_source(model):
        return type(model) is EncoderDecoder
    return getattr(type(model), "hidden_states", None) is Transformer.hidden_states


def check_params(params: Any) -> None:
    """Raises ConfigError unless params are a model's parameters, without a key "params"."""
    if not isinstance(params, Mapping) or "params" in params:
        got = list(params) if isinstance(params, Mapping) else type(params).__name__
        raise ConfigError(
            f'params must be only the parameters, model.init(...)["params"], got {got}'
        )


def _check_takes(hidden_states: Any, names: Sequence[str], got: str) -> None:
    """Checks the arguments that decoding passes to `hidden_states`."""
    try:
        inspect.signature(hidden_states).bind(None, None, **dict.fromkeys(names))
    except TypeError as error:
        raise ConfigError(
            f"hidden_states of model must take (tokens, *, {', '.join(names)}), like that of a "
            f"Decoder, got that of {got}: {error}"
        ) from None


def with_automatic_attention(model: nn.Module) -> nn.Module:
    """The model with attention_implementation "auto"; ConfigError if its config is no field."""
    # Attention over a cache is always "auto". This covers the rest: the encoder and the first
    # cross-attention, which may run on another platform than training did.
    config = dataclasses.replace(model.config, attention_implementation="auto")
    if config == model.config:
        return model
    if "config" not in {field.name for field in dataclasses.fields(model)}:
        raise ConfigError(
            "model must have its config as a field, or attention_implementation='auto' in it, got "
            f"{model.config.attention_implementation!r} in that of a {type(model).__name__}"
        )
    return model.clone(config=config)


def decoder_states(
    model: nn.Module, tokens: jax.Array, inputs: TransformerInputs
) -> TransformerOutput:
    """Hidden states of new tokens `[B, T]`; ConfigError unless the decoder extends a cache."""
    name = type(model).__name__
    decoder = model
    if reads_source(model):
        decoder = getattr(model, "decoder", None)
    if decoder is None:
        raise ConfigError(f"model must have a decoder, as an EncoderDecoder has, got a {name}")
    output = decoder.hidden_states(tokens, **inputs)
    if not isinstance(output, TransformerOutput):
        got = type(output).__name__
        raise ConfigError(
            f"hidden_states of model must return a TransformerOutput, got {got} from a {name}"
        )
    cache = inputs.get("cache")
    if cache is not None and is_unchanged(output.cache, cache):
        got = "no cache" if output.cache is None else "the same cache"
        raise ConfigError(
            "hidden_states of model must return the given cache, extended by the new tokens, got "
            f"{got} from a {name}; return that of its layers, or generate without a cache: "
            "generate(..., use_cache=False)"
        )
    return output
