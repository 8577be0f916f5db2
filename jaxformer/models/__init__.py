"""Whole models, put together from the modules."""

from jaxformer.models.attention_map import AttentionMap
from jaxformer.models.decoder import Decoder, DecoderOutput, init_cache
from jaxformer.models.encoder import (
    Encoder,
    EncoderOutput,
    MaskedLanguageModel,
    SequenceClassifier,
)
from jaxformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderOutput

__all__ = [
    "AttentionMap",
    "Decoder",
    "DecoderOutput",
    "Encoder",
    "EncoderDecoder",
    "EncoderDecoderOutput",
    "EncoderOutput",
    "MaskedLanguageModel",
    "SequenceClassifier",
    "init_cache",
]
