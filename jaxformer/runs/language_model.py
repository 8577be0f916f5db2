"""Runs of a decoder: a causal language model that continues text."""

import dataclasses
import math
import pathlib
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxformer import run_folder, text
from jaxformer.config import ExperimentConfig, ModelConfig, SamplingConfig
from jaxformer.errors import DataError
from jaxformer.inference import check_prompts, generate_stream
from jaxformer.models import Decoder
from jaxformer.runs.attention import check_length, self_attention_map, with_weights
from jaxformer.runs.base import (
    PreparedRun,
    Run,
    check_samples,
    evaluate_on_one_device,
    fitting_vocab_size,
    train_tokenizer,
)
from jaxformer.runs.streams import (
    StreamText,
    default_prompts,
    evaluation_rows,
    read_text,
    windows,
)
from jaxformer.runs.word_vectors import StartVectors
from jaxformer.training import Evaluation, TrainingData, language_model_loss
from jaxformer.training.losses import LossFunction
from jaxformer.training.parallel import Runner
from jaxformer.viz import AttentionMap

__all__ = ["LanguageModelRun", "PreparedLanguageModel", "init_params"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedLanguageModel(PreparedRun):
    """A decoder and its text, before the first step.

    Args:
        text: the tokens.
    """

    text: StreamText

    @classmethod
    def prepare(
        cls, config: ExperimentConfig, folder: pathlib.Path | None
    ) -> "PreparedLanguageModel":
        """Reads the text; takes the tokenizer of the folder where a run goes on."""
        train_text, validation_text = read_text(config.data)
        if folder is None:
            tokenizer = train_tokenizer(config.tokenizer, train_text, validation_text)
        else:
            tokenizer = run_folder.load_tokenizer(folder)
        size = fitting_vocab_size("model.vocab_size", config.model.vocab_size, tokenizer)
        prompts = config.samples.prompts or default_prompts(
            validation_text, tokenizer, config.model.max_len
        )
        config = dataclasses.replace(
            config,
            model=dataclasses.replace(config.model, vocab_size=size),
            samples=dataclasses.replace(config.samples, prompts=prompts),
        )
        vectors, config = StartVectors.read(config, tokenizer)
        check_samples(
            prompts, lambda prompt: _check_prompt(config, tokenizer, prompt, len(train_text))
        )
        stream = StreamText.encode(tokenizer, train_text, validation_text)
        return cls(
            config=config, vectors=vectors, summary=stream.summary, report=vectors.report,
            text=stream,
        )  # fmt: skip

    def write(self, folder: pathlib.Path) -> None:
        """Writes tokenizer and validation text into a new run folder."""
        self.text.write(folder, self._predicted_bytes())

    def training_data(self, runner: Runner) -> TrainingData:
        """Makes batches of windows, or of packed documents."""
        config, hosts = self.config, {"host": runner.host}
        assert config.training.batch_size is not None  # the config requires it of streams
        source, validation = windows(config, self.text.train), windows(config, self.text.validation)
        rows = math.lcm(evaluation_rows(config), runner.num_devices)
        return TrainingData(
            batches=text.Batches(source, config.training.batch_size, seed=config.seed, **hosts),
            validation=lambda: text.evaluation_batches(validation, rows, **hosts),
            validation_bytes=self._predicted_bytes(),
        )

    def loss(self, label_smoothing: float) -> LossFunction:
        """Makes the loss of the decoder."""
        return language_model_loss(Decoder(self.config.model), label_smoothing=label_smoothing)

    def draw_params(self, rng: jax.Array) -> Any:
        """Draws the decoder's parameters."""
        return init_params(self.config.model, rng)

    def _predicted_bytes(self) -> int:
        """UTF-8 bytes of the validation text, but for tokens that nothing comes before.

        Those cost the model nothing.
        """
        validation, tokenizer = self.text.validation, self.text.tokenizer
        unpredicted = windows(self.config, validation).unpredicted
        free = sum(tokenizer.byte_length(int(validation.tokens[i])) for i in unpredicted)
        return self.text.validation_bytes - free


@dataclasses.dataclass(frozen=True)
class LanguageModelRun(Run):
    """A trained decoder, with its tokenizer.

    Args:
        tokenizer: the run's own.
    """

    tokenizer: text.Tokenizer
    kind: ClassVar[str] = "a language model, which continues text"

    @classmethod
    def open(
        cls, folder: pathlib.Path, config: ExperimentConfig, params: Any, step: int
    ) -> "LanguageModelRun":
        """Reads what else the run folder has."""
        return cls(folder, config, params, step, run_folder.load_tokenizer(folder))

    def evaluate(self) -> Evaluation:
        """Measures the loss on the run's validation text, on one device."""
        validation = run_folder.ValidationTokens.load(self.folder)
        source = windows(self.config, validation.stream)
        rows = evaluation_rows(self.config)
        data = TrainingData(
            batches={}, validation=lambda: text.evaluation_batches(source, rows),
            validation_bytes=validation.num_bytes,
        )  # fmt: skip
        loss = language_model_loss(Decoder(self.config.model))
        return evaluate_on_one_device(loss, self.params, data)

    def generate(
        self,
        prompt: str,
        *,
        rng: jax.Array,
        sampling: SamplingConfig | None = None,
        max_new_tokens: int | None = None,
    ) -> Iterator[str]:
        """Continues a text, piece by piece as it comes.

        Args:
            prompt: the text to continue; an empty one starts a new document, where the run was
                trained on windows of several.
            rng: PRNG key of the draws.
            sampling: how tokens are chosen; as the model says when not given.
            max_new_tokens: longest continuation; what fits the context when not given.

        Yields:
            The continuation, without the prompt.

        Raises:
            DataError: the prompt is empty or too long, or cannot be encoded.
        """
        documents = run_folder.load_summary(self.folder).documents
        ids = _encode_prompt(self.config, self.tokenizer, prompt, documents)
        stop = self.tokenizer.end_of_text
        decoder = self.tokenizer.stream()
        decoder.push(ids)  # so that spaces between prompt and continuation are right
        for (new,) in generate_stream(
            self.config.model,
            self.params,
            [ids],
            max_new_tokens=_new_tokens(self.config.model, ids, max_new_tokens),
            rng=rng,
            sampling=SamplingConfig() if sampling is None else sampling,
            stop_tokens=() if stop is None else (stop,),
            num_tokens=self.tokenizer.vocab_size,
        ):
            yield decoder.push(new)
        yield decoder.flush()

    def sample(self, prompt: str, rng: jax.Array) -> str:
        """Continues a prompt as the config's samples say; returns it with its continuation."""
        samples = self.config.samples
        pieces = self.generate(
            prompt, rng=rng, sampling=samples, max_new_tokens=samples.max_new_tokens
        )
        return prompt + "".join(pieces)

    def attention(self, prompt: str) -> list[AttentionMap]:
        """Computes where each token looks among itself and those before it."""
        ids = self.tokenizer.encode(prompt)
        check_length("a text to look into", ids.size, self.config.model.max_len)
        output = with_weights(Decoder(self.config.model), self.params, ids[None])
        weights = output.weights.self_attention
        return [self_attention_map("decoder self-attention", weights, self.tokenizer, ids)]


def init_params(model: ModelConfig, rng: jax.Array) -> Any:
    """Makes the parameters of a decoder."""
    tokens = jnp.zeros((1, min(2, model.max_len)), jnp.int32)
    return Decoder(model).init(rng, tokens)["params"]


def _encode_prompt(
    config: ExperimentConfig, tokenizer: text.Tokenizer, prompt: str, documents: int
) -> list[int]:
    """Encodes a prompt; an empty one as the end of the document before, if the model knows that.

    It does where windows run on from one of several documents to the next.
    """
    ids: list[int] = tokenizer.encode(prompt).tolist()
    if not ids and tokenizer.end_of_text is not None:
        if documents > 1 and config.data.packing == "windows":
            return [tokenizer.end_of_text]
    if not ids:
        raise DataError("the prompt is empty; give at least one character to continue")
    return ids


def _new_tokens(model: ModelConfig, ids: list[int], wanted: int | None) -> int:
    return max(1, model.max_len - len(ids)) if wanted is None else wanted


def _check_prompt(
    config: ExperimentConfig, tokenizer: text.Tokenizer, prompt: str, documents: int
) -> None:
    ids = _encode_prompt(config, tokenizer, prompt, documents)
    new = _new_tokens(config.model, ids, config.samples.max_new_tokens)
    check_prompts(config.model, [ids], new)
