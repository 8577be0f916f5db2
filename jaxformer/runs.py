"""Run folders: making one from a config, and opening one to generate or evaluate."""

import dataclasses
import hashlib
import json
import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer import text
from jaxformer.config import (
    DataConfig,
    ExperimentConfig,
    ModelConfig,
    TokenizerConfig,
    config_differences,
    config_to_toml,
    load_config,
)
from jaxformer.errors import CheckpointError, ConfigError
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

_CONFIG = "config.toml"
_TOKENIZER = "tokenizer.json"
_HELD_OUT = "held_out.npz"
_DATA = "data.json"

# What may change when a run goes on: how far, how often, where; never what is computed.
_MAY_CHANGE = ("training.steps", "training.log_every", "training.eval_every",
               "training.checkpoint_every", "training.keep_checkpoints", "training.runner",
               "training.devices", "training.cpu_devices", "samples.", "out")  # fmt: skip


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
        held_out = _HeldOut.load(self.folder / _HELD_OUT)
        loss = language_model_loss(Decoder(self.config.model))
        eval_step = SingleRunner().compile_eval(make_eval_step(loss))
        source = _source(self.config, held_out.stream)
        batches = text.evaluation_batches(source, _eval_batch_size(self.config))
        return evaluate(eval_step, self.params, batches, held_out.num_bytes)


class _HeldOut(NamedTuple):
    """The held-out tokens, kept in the run folder so that it needs no other file.

    Args:
        stream: the tokens.
        num_bytes: UTF-8 bytes of the text that is predicted: all but the first token's.
    """

    stream: text.TokenStream
    num_bytes: int

    def save(self, path: pathlib.Path) -> None:
        np.savez(
            path,
            tokens=self.stream.tokens,
            offsets=self.stream.offsets,
            num_bytes=np.int64(self.num_bytes),
        )

    @classmethod
    def load(cls, path: pathlib.Path) -> "_HeldOut":
        try:
            with np.load(path, allow_pickle=False) as file:
                stream = text.TokenStream(file["tokens"], file["offsets"])
                return cls(stream, int(file["num_bytes"]))
        except (OSError, KeyError, ValueError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from None


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
    config = _read_config(folder)
    tokenizer = text.Tokenizer.load(folder / _TOKENIZER)
    with Checkpoints(folder / "checkpoints", read_only=True) as checkpoints:
        chosen = checkpoints.best_step if step is None else step
        sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        shapes = jax.eval_shape(_init_params(config.model), jax.random.key(0))
        template = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), shapes
        )
        params = checkpoints.restore_params(template, chosen)
    assert chosen is not None  # else restore_params has raised
    return Run(folder, config, tokenizer, params, chosen)


def train_run(
    config: ExperimentConfig, on_start: Callable[[ExperimentConfig], None] | None = None
) -> FitResult:
    """Trains in the run folder `config.out`, which it makes, or goes on with.

    Args:
        config: the experiment, its out set.
        on_start: called with the config, its model.vocab_size filled in, before the first step.

    Returns:
        How it ended.

    Raises:
        ConfigError: the config is impossible on this machine or with this text.
        CheckpointError: out is a folder of something else, or of a run with another config.
        DataError: the text cannot be used.
    """
    if config.out is None:
        raise ConfigError("out, the run folder, must be set")
    folder = pathlib.Path(config.out)
    _check_folder(folder)
    training = config.training
    runner = make_runner(
        training.runner,
        devices=training.devices,
        batch_size=training.batch_size,
        accumulate_steps=training.accumulate_steps,
    )
    train_text, held_out_text = _read_text(config.data)
    tokenizer = _train_tokenizer(config.tokenizer, train_text, held_out_text)
    config = dataclasses.replace(config, model=_with_vocabulary(config.model, tokenizer))
    _check_same_run(folder, config, tokenizer, _fingerprint(train_text, held_out_text))

    cache = text.default_cache_dir()
    stream = text.cached_stream(train_text, tokenizer, cache)
    held_out_stream = text.cached_stream(held_out_text, tokenizer, cache)
    held_out = _HeldOut(
        held_out_stream, _predicted_bytes(held_out_text, held_out_stream, tokenizer)
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder / _TOKENIZER)
    held_out.save(folder / _HELD_OUT)
    summary = {
        "fingerprint": _fingerprint(train_text, held_out_text),
        "train_tokens": int(stream.tokens.size),
        "held_out_tokens": int(held_out_stream.tokens.size),
    }
    (folder / _DATA).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    # Last, because a folder with a config counts as a run.
    (folder / _CONFIG).write_text(config_to_toml(config), encoding="utf-8")

    if on_start is not None:
        on_start(config)
    hosts = {"num_hosts": runner.num_hosts, "host": runner.host}
    source, held_out_source = _source(config, stream), _source(config, held_out_stream)
    rows = math.lcm(_eval_batch_size(config), runner.num_devices)

    def held_out_batches() -> Iterator[dict[str, np.ndarray]]:
        return text.evaluation_batches(held_out_source, rows, **hosts)

    return fit(
        config,
        TrainingData(
            batches=text.Batches(source, training.batch_size, seed=config.seed, **hosts),
            held_out=held_out_batches,
            held_out_bytes=held_out.num_bytes,
        ),
        language_model_loss(Decoder(config.model)),
        _init_params(config.model),
        runner,
        folder,
    )


def _init_params(model: ModelConfig) -> Any:
    tokens = jnp.zeros((1, min(2, model.max_len)), jnp.int32)
    return lambda rng: Decoder(model).init(rng, tokens)["params"]


def _source(config: ExperimentConfig, stream: text.TokenStream) -> text.Source:
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
    if config.validation_paths:
        return documents, text.read_documents(config.validation_paths)
    return text.split_documents(documents, config.validation_fraction)


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


def _with_vocabulary(model: ModelConfig, tokenizer: text.Tokenizer) -> ModelConfig:
    if model.vocab_size is None:
        return dataclasses.replace(model, vocab_size=tokenizer.vocab_size)
    if model.vocab_size < tokenizer.vocab_size:
        raise ConfigError(
            f"model.vocab_size must be at least the tokenizer's {tokenizer.vocab_size}, got "
            f"{model.vocab_size}; raise it, or remove it to take the tokenizer's"
        )
    return model


def _predicted_bytes(
    documents: list[str], stream: text.TokenStream, tokenizer: text.Tokenizer
) -> int:
    """UTF-8 bytes of a stream's text but for its first token, which nothing predicts."""
    first = tokenizer.decode(stream.tokens[:1])
    total = sum(len(document.encode()) for document in documents)
    return total - len(first.encode())


def _fingerprint(train_text: list[str], held_out_text: list[str]) -> str:
    """SHA-256 of the texts, so that a run is not continued on others."""
    digest = hashlib.sha256()
    for document in (*train_text, "\0", *held_out_text):
        digest.update(hashlib.sha256(document.encode()).digest())
    return digest.hexdigest()


def _check_folder(folder: pathlib.Path) -> None:
    """Refuses a folder that holds something else than a run."""
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"out={folder} is a file; choose another out")
    known = {_TOKENIZER, _HELD_OUT, _DATA}  # what an interrupted start can leave behind
    if folder.is_dir() and not (folder / _CONFIG).exists():
        others = sorted(path.name for path in folder.iterdir() if path.name not in known)
        if others:
            raise CheckpointError(
                f"out={folder} is not a run folder, and is not empty: it has {others[0]}; choose "
                "another out"
            )


def _read_config(folder: pathlib.Path) -> ExperimentConfig:
    if not (folder / _CONFIG).is_file():
        reason = "it has no config.toml" if folder.is_dir() else "there is no such folder"
        raise CheckpointError(
            f"{folder} is not a run folder: {reason}; jaxformer train CONFIG.toml makes one"
        )
    return load_config(folder / _CONFIG)


def _check_same_run(
    folder: pathlib.Path, config: ExperimentConfig, tokenizer: text.Tokenizer, fingerprint: str
) -> None:
    """Refuses to go on with a run of another config, tokenizer or text."""
    if not (folder / _CONFIG).exists():
        return
    differences = config_differences(_read_config(folder), config)
    forbidden = [
        f"{key}: {before!r} there, {after!r} now"
        for key, (before, after) in differences.items()
        if not key.startswith(_MAY_CHANGE)
    ]
    if forbidden:
        raise CheckpointError(
            f"{folder} belongs to another config ({'; '.join(forbidden)}); choose another out, or "
            "undo the change"
        )
    summary = json.loads((folder / _DATA).read_text(encoding="utf-8"))
    same_tokenizer = text.Tokenizer.load(folder / _TOKENIZER).to_json() == tokenizer.to_json()
    if summary["fingerprint"] != fingerprint or not same_tokenizer:
        raise CheckpointError(
            f"{folder} was trained on another text than data now gives; choose another out, or "
            "restore the text"
        )
