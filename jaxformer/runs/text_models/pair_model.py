"""An encoder-decoder with its tokenizers: and the search for the tokens of translations."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import tokenizers
from tokenizers import processors

from jaxformer import text
from jaxformer.config import BeamSearchConfig
from jaxformer.errors import DataError
from jaxformer.inference import Hypothesis, translate_stream
from jaxformer.interop import HuggingFaceModel
from jaxformer.models import EncoderDecoder
from jaxformer.runs.data.prepare import encode_each
from jaxformer.runs.text_models.options import with_options
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.text.tables.pairs import encode_source


class PairModel(TextModel):
    """An encoder-decoder with tokenizers of sources and targets."""

    num_tokenizers: ClassVar[int] = 2

    @property
    def module(self) -> EncoderDecoder:
        """The encoder-decoder."""
        return EncoderDecoder(self.config.model)

    @property
    def init_inputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """A source and a target."""
        return 2 * super().init_inputs

    def batch_shapes(self, rows: int) -> dict[str, jax.ShapeDtypeStruct]:
        """Tokens and lengths of sources and targets, and the targets' labels."""
        batch, lengths = super().batch_shapes(rows), jax.ShapeDtypeStruct((rows,), jnp.int32)
        source = {"source_tokens": batch["tokens"], "source_lengths": lengths}
        return batch | {"lengths": lengths} | source

    def encode(self, text: str) -> np.ndarray:
        """Encodes a source: int32 [tokens]."""
        return encode_source(text, self.tokenizers[0], self.max_len)

    @property
    def end_of_text(self) -> int:
        """The token that ends a target."""
        end = self.tokenizer.end_of_text
        assert end is not None  # checked by encode_source
        return end

    def to_huggingface(self) -> HuggingFaceModel:
        """The model, with the search of the config's translation."""
        model, end, tokenizer = super().to_huggingface(), self.end_of_text, self.tokenizers[0]
        special = model.unchecked_special_tokens
        longest = special.max_length
        if longest is None and special.max_new_tokens is None:
            longest = 1 + self.max_len  # it counts the start token
        special = dataclasses.replace(
            special,
            decoder_start=end if special.decoder_start is None else special.decoder_start,
            search=with_options(BeamSearchConfig, self.config.translation),
            max_length=longest,
        )
        if not tokenizer.roles.surrounded:  # there, a tokenizer adds the end of a source itself
            tokenizer = _with_end_behind(tokenizer)
        return model._replace(tokenizer=tokenizer, unchecked_special_tokens=special)

    @property
    def start_tokens(self) -> list[int] | None:
        """Tokens that the decoder reads before a target; None for the end of text."""
        decoding = self.decoding
        if decoding.decoder_start is None:
            return None
        first = decoding.forced_first
        return [decoding.decoder_start] if first is None else [decoding.decoder_start, first]

    @property
    def starts(self) -> list[int]:
        """Tokens that the decoder reads before a target."""
        return self.start_tokens or [self.end_of_text]

    @property
    def max_new_tokens(self) -> int:
        """Largest number of tokens of a translation, including its end."""
        special = self.decoding
        if special.max_new_tokens is not None or special.max_length is None:
            return min(self.max_len, special.max_new_tokens or self.max_len)
        return min(self.max_len, special.max_length - 1)

    @property
    def _vocabulary(self) -> dict[str, Any]:
        """Options for the tokens that a search may choose, and whose probabilities sum to 1."""
        forbidden = self.in_vocabulary(self.decoding.forbidden)
        size = self.tokenizer.vocab_size
        if not self.tokenizer.roles.surrounded:
            return {"vocab_size": size, "forbidden_tokens": forbidden}
        # For models made elsewhere, ids without a token are part of the softmax, too.
        beyond = range(size, self.config.model.vocab_size or size)
        return {"forbidden_tokens": (*forbidden, *beyond)}

    def search(
        self, sentences: Sequence[str], search: BeamSearchConfig
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Translates by beam search into tokens, yielding (index, hypotheses) as they are done."""
        batches = translate_stream(
            self.module,
            self.params,
            [ids.tolist() for ids in encode_each(sentences, self.encode)],
            start_token=self.starts[0],
            end_tokens=self.in_vocabulary(self.stop_tokens),
            search=search,
            max_new_tokens=self.max_new_tokens,
            **self._vocabulary,
            renormalize=self.decoding.renormalize,
            forced_first_token=self.decoding.forced_first,
            forced_last_token=self.decoding.forced_last,
        )
        return itertools.chain.from_iterable(batches)

    def encode_target(self, target: str) -> np.ndarray:
        """Encodes a target without its end, leaving room for it."""
        ids = self.tokenizer.encode(target.strip())
        most = self.max_len - len(self.starts)
        if not 1 <= ids.size <= most:
            raise DataError(
                f"a target must have 1 to {most} tokens, got {ids.size}; "
                + ("shorten it" if ids.size else "write some text")
            )
        return ids

    @staticmethod
    def read_hidden(module: EncoderDecoder, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
        """Hidden states of sources, by the encoder."""
        return module.encode(tokens, lengths=lengths).hidden


def _with_end_behind(tokenizer: text.Tokenizer) -> text.Tokenizer:
    """The tokenizer, which puts the end of text behind every text."""
    library, end = tokenizers.Tokenizer.from_str(tokenizer.to_json()), tokenizer.roles.end_of_text
    library.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, library.token_to_id(end))]
    )
    return text.Tokenizer(library, dataclasses.replace(tokenizer.roles, surrounded=True))
