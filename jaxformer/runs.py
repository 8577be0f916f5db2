"""Runs: training one in its folder, and opening one to generate or evaluate."""

import dataclasses
import hashlib
import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer import run_folder, text
from jaxformer.config import (
    DataConfig,
    ExperimentConfig,
    ModelConfig,
    SamplingConfig,
    TokenizerConfig,
)
from jaxformer.errors import CheckpointError, ConfigError, DataError
from jaxformer.inference import check_prompts, generate_stream
from jaxformer.models import Decoder
from jaxformer.training import (
    Checkpoints,
    Evaluation,
    FitResult,
    SingleRunner,
    TrainingData,
    evaluate,
    fit,
    language_model_loss,
    make_eval_step,
    make_runner,
)

__all__ = ["Run", "open_run", "train_run"]


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained run: what generation and evaluation start from.

    Args:
        folder: the run folder.
        config: the experiment, its model.vocab_size filled in.
        tokenizer: the run's own.
        params: parameters of the checkpoint that was opened.
        step: of that checkpoint.
    """

    folder: pathlib.Path
    config: ExperimentConfig
    tokenizer: text.Tokenizer
    params: Any
    step: int

    def evaluate(self) -> Evaluation:
        """Measures the loss on the run's held-out text, on one device."""
        held_out = run_folder.HeldOut.load(self.folder)
        loss = language_model_loss(Decoder(self.config.model))
        eval_step = SingleRunner().compile_eval(make_eval_step(loss))
        source = _source(self.config, held_out.stream)
        batches = text.evaluation_batches(source, _eval_batch_size(self.config))
        return evaluate(eval_step, self.params, batches, held_out.num_bytes)

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


def open_run(path: str | pathlib.Path, step: int | None = None) -> Run:
    """Opens a run folder.

    Args:
        path: of the folder.
        step: which checkpoint; the one with the lowest held-out loss when not given.

    Returns:
        The run.

    Raises:
        CheckpointError: the path is no run folder, or has no such checkpoint.
    """
    folder = pathlib.Path(path)
    config = run_folder.read_run_config(folder)
    tokenizer = run_folder.load_tokenizer(folder)
    with Checkpoints(folder / run_folder.CHECKPOINTS, read_only=True) as checkpoints:
        chosen = checkpoints.best_step if step is None else step
        shapes = jax.eval_shape(_init_params(config.model), jax.random.key(0))
        params = checkpoints.restore_params(SingleRunner().template(shapes), chosen)
    assert chosen is not None  # else restore_params has raised
    return Run(folder, config, tokenizer, params, chosen)


def train_run(
    config: ExperimentConfig, on_start: Callable[[ExperimentConfig], None] | None = None
) -> FitResult:
    """Trains in the run folder `config.out`, which it makes, or goes on with.

    Args:
        config: the experiment, its out set.
        on_start: called with the config, all that the text decides filled in, before the first
            step.

    Returns:
        How it ended.

    Raises:
        ConfigError: the config is impossible on this machine or with this text.
        CheckpointError: out is a folder of something else, or of a run with another config.
        DataError: the text cannot be used, or a prompt of the samples does not fit.
    """
    if config.out is None:
        raise ConfigError("out, the run folder, must be set")
    folder, training = pathlib.Path(config.out), config.training
    goes_on = run_folder.is_run(folder)
    if not goes_on:
        run_folder.require_free(folder)
    runner = make_runner(
        training.runner,
        devices=training.devices,
        batch_size=training.batch_size,
        accumulate_steps=training.accumulate_steps,
    )
    train_text, held_out_text = _read_text(config.data)
    if goes_on:
        tokenizer = run_folder.load_tokenizer(folder)
    else:
        tokenizer = _train_tokenizer(config.tokenizer, train_text, held_out_text)
    config = _fill_in(config, tokenizer, held_out_text)
    _check_samples(config, tokenizer, len(train_text))

    cache = text.default_cache_dir()
    stream = text.cached_stream(train_text, tokenizer, cache)
    held_out_stream = text.cached_stream(held_out_text, tokenizer, cache)
    source, held_out_source = _source(config, stream), _source(config, held_out_stream)
    num_bytes = sum(len(document.encode()) for document in held_out_text)
    num_bytes -= _unpredicted_bytes(held_out_source, held_out_stream, tokenizer)
    fingerprint = _fingerprint(train_text, held_out_text)
    if goes_on:
        run_folder.check_same_run(folder, config, fingerprint)
        _check_steps(folder, training.steps)
        run_folder.update_config(folder, config)
    else:
        run_folder.start_folder(
            folder,
            config,
            tokenizer,
            run_folder.HeldOut(held_out_stream, num_bytes),
            run_folder.DataSummary(
                fingerprint=fingerprint,
                documents=len(train_text),
                train_tokens=int(stream.tokens.size),
                held_out_tokens=int(held_out_stream.tokens.size),
            ),
        )
    if on_start is not None:
        on_start(config)

    hosts = {"num_hosts": runner.num_hosts, "host": runner.host}
    rows = math.lcm(_eval_batch_size(config), runner.num_devices)
    return fit(
        config,
        TrainingData(
            batches=text.Batches(source, training.batch_size, seed=config.seed, **hosts),
            held_out=lambda: text.evaluation_batches(held_out_source, rows, **hosts),
            held_out_bytes=num_bytes,
        ),
        language_model_loss(Decoder(config.model)),
        _init_params(config.model),
        runner,
        folder,
    )


def _init_params(model: ModelConfig) -> Any:
    tokens = jnp.zeros((1, min(2, model.max_len)), jnp.int32)
    return lambda rng: Decoder(model).init(rng, tokens)["params"]


def _source(config: ExperimentConfig, stream: text.TokenStream) -> text.Windows:
    kind = {"windows": text.Windows, "documents": text.PackedDocuments}[config.data.packing]
    return kind(stream, config.model.max_len)


def _eval_batch_size(config: ExperimentConfig) -> int:
    """Rows of an evaluation batch: those of a micro-batch, which are known to fit in memory."""
    return config.training.batch_size // config.training.accumulate_steps


def _read_text(config: DataConfig) -> tuple[list[str], list[str]]:
    if config.source == "python":
        documents = text.python_documents()
    elif config.paths:
        documents = text.read_documents(config.paths)
    else:
        raise ConfigError(
            "data.source 'files' needs data.paths: text files or globs; for example "
            "--data.paths my_text.txt"
        )
    if not config.validation_paths:
        return text.split_documents(documents, config.validation_fraction)
    held_out = text.read_documents(config.validation_paths)
    if shared := set(documents) & set(held_out):
        raise DataError(
            "data.validation_paths must hold other text than data.paths, got a document in both, "
            f"which begins {min(shared)[:40]!r}; take it out of one"
        )
    return documents, held_out


def _train_tokenizer(
    config: TokenizerConfig, train_text: list[str], held_out_text: list[str]
) -> text.Tokenizer:
    """Trains on the training text; characters are taken from all, since none may be unknown."""
    if config.kind == "byte":
        return text.byte_tokenizer()
    if config.kind == "character":
        return text.train_character([*train_text, *held_out_text])
    if config.kind == "word":
        return text.train_word(train_text, config.vocab_size)
    assert config.vocab_size is not None  # the config requires it
    return text.train_bpe(train_text, config.vocab_size)


def _fill_in(
    config: ExperimentConfig, tokenizer: text.Tokenizer, held_out_text: list[str]
) -> ExperimentConfig:
    """Fills in what the text decides: the vocabulary, and prompts where the config has none."""
    model, samples = config.model, config.samples
    if model.vocab_size is None:
        model = dataclasses.replace(model, vocab_size=tokenizer.vocab_size)
    elif model.vocab_size < tokenizer.vocab_size:
        raise ConfigError(
            f"model.vocab_size must be at least the tokenizer's {tokenizer.vocab_size}, got "
            f"{model.vocab_size}; raise it, or remove it to take the tokenizer's"
        )
    if not samples.prompts:
        lines = [line for line in "\n".join(held_out_text).splitlines() if line.strip()]
        places = [lines[i * len(lines) // 3].strip() for i in range(3)]
        # Short enough for any context: one token is one character or more.
        length = max(1, min(20, model.max_len // 2))
        samples = dataclasses.replace(samples, prompts=tuple(line[:length] for line in places))
    return dataclasses.replace(config, model=model, samples=samples)


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


def _check_samples(config: ExperimentConfig, tokenizer: text.Tokenizer, documents: int) -> None:
    """Raises what sampling at the end would raise, before the first step."""
    for prompt in config.samples.prompts:
        try:
            ids = _encode_prompt(config, tokenizer, prompt, documents)
            new = _new_tokens(config.model, ids, config.samples.max_new_tokens)
            check_prompts(config.model, [ids], new)
        except DataError as error:
            raise DataError(f"samples.prompts has {prompt!r}: {error}") from None


def _unpredicted_bytes(
    source: text.Windows, stream: text.TokenStream, tokenizer: text.Tokenizer
) -> int:
    """UTF-8 bytes of the tokens that nothing comes before: they cost the model nothing."""
    return sum(tokenizer.byte_length(int(stream.tokens[i])) for i in source.unpredicted)


def _fingerprint(train_text: list[str], held_out_text: list[str]) -> str:
    """SHA-256 of the texts, so that a run is not continued on others."""
    digest = hashlib.sha256()
    for document in (*train_text, "\0", *held_out_text):
        digest.update(hashlib.sha256(document.encode()).digest())
    return digest.hexdigest()


def _check_steps(folder: pathlib.Path, steps: int) -> None:
    with Checkpoints(folder / run_folder.CHECKPOINTS, read_only=True) as checkpoints:
        trained = checkpoints.latest_step or 0
    if trained > steps:
        raise CheckpointError(
            f"{folder} has been trained to step {trained} already, got training.steps={steps}; "
            f"set it to {trained} or more, or choose another out"
        )
