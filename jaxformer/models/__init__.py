"""Whole models, put together from the modules."""

from jaxformer.models.decoder import Decoder, DecoderOutput, init_cache

__all__ = ["Decoder", "DecoderOutput", "init_cache"]
