"""Complete models: decoder, encoder with its heads, and encoder-decoder."""

from jaxformer.functional.taps import Taps
from jaxformer.models.cache import init_cache
from jaxformer.models.classifier import SequenceClassifier
from jaxformer.models.contexts import AttentionFunctions
from jaxformer.models.encoder import Encoder, MaskedLanguageModel, PooledEncoder
from jaxformer.models.encoder_decoder import (
    EncoderDecoder,
    EncoderDecoderInputs,
    EncoderDecoderOutput,
)
from jaxformer.models.transformer import Decoder, Transformer, TransformerOutput
from jaxformer.models.transformer_inputs import TransformerInputs

__all__ = [
    "AttentionFunctions",
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "EncoderDecoderInputs",
    "EncoderDecoderOutput",
    "MaskedLanguageModel",
    "PooledEncoder",
    "SequenceClassifier",
    "Taps",
    "Transformer",
    "TransformerInputs",
    "TransformerOutput",
    "init_cache",
]
