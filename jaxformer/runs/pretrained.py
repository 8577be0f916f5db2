"""Hugging Face folders as runs: config, task and parameters."""

import dataclasses
import os
from typing import Any

import jax

from jaxformer.config import (
    AdamWConfig,
    BeamSearchConfig,
    DataConfig,
    ExperimentConfig,
    SamplesConfig,
    TokenizerConfig,
    TrainingConfig,
    TranslationConfig,
)
from jaxformer.errors import ConfigError
from jaxformer.interop import (
    HuggingFaceChatTemplate,
    HuggingFaceFolder,
    SpecialTokens,
    Tokenizers,
    load_chat_template,
    open_huggingface,
)
from jaxformer.interop.generation_settings import search_min_new_tokens
from jaxformer.interop.hub import local_folder
from jaxformer.runs.chat import ChatTask
from jaxformer.runs.classification import ClassificationTask
from jaxformer.runs.language_model import LanguageModelTask
from jaxformer.runs.pretrained_tokens import decoding_of, required
from jaxformer.runs.task import Task
from jaxformer.runs.trained import task_class
from jaxformer.training.parallel import Runner

__all__ = ["Pretrained"]

_SOURCES = {"decoder": "files", "masked": "files", "pooled": "files", "classifier": "labelled",
            "encoder_decoder": "pairs"}  # fmt: skip
_FOR_PYTHON = {
    "decoder_classifier": "a decoder that classifies",
    "token_classifier": "an encoder that classifies each token",
}
_ROWS, _TOKENS = 1, 4096  # in a batch of an evaluation


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A Hugging Face folder, as a run that was not trained here.

    Args:
        opened: its config and the names of its tensors.
        special: its special tokens and decoding settings.
        tokenizers: tokenizers of sources and targets; None if the folder has none.
        chat_template: chat template; None if the folder has none.
    """

    opened: HuggingFaceFolder
    special: SpecialTokens
    tokenizers: Tokenizers | None
    chat_template: HuggingFaceChatTemplate | None

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], *, source_language: str | None = None,
        target_language: str | None = None, **options: Any,
    ) -> "Pretrained":  # fmt: skip
        """Reads everything in a folder except its parameters.

        Args:
            path: path of the folder, or a model id, OWNER/MODEL.
            source_language: source language, for a multilingual translator.
            target_language: target language, for a multilingual translator.
            **options: as in `open_huggingface`.

        Raises:
            CheckpointError: a file is missing or damaged.
            ConfigError: the model is not supported, or an id needs huggingface_hub.
            DataError: a tokenizer cannot be used.
        """
        opened = open_huggingface(local_folder(path), **options)
        tokenizers = opened.read_tokenizers(source_language, target_language)
        target = None if tokenizers is None else tokenizers.target
        special = opened.read_special_tokens(target)
        if target is not None and target_language is not None:
            around, end = target.surrounding_tokens, target.end_of_text
            before, after = ([i for i in ids if i != end] for ids in (around.before, around.after))
            # If the language comes after a text, as in mBART, the decoder starts with it.
            if before:
                special = dataclasses.replace(special, forced_first=before[0])
            else:
                special = dataclasses.replace(special, decoder_start=after[0])
        return cls(opened, special, tokenizers, load_chat_template(opened.path))

    @property
    def config(self) -> ExperimentConfig:
        """An experiment config for this model: the model and its decoding settings."""
        kind, model = self.opened.kind, self.opened.config
        if kind in _FOR_PYTHON:
            raise ConfigError(
                f"{self.opened.path} holds {_FOR_PYTHON[kind]}, which no command can use; load it "
                "in Python with interop.load_huggingface"
            )
        in_rows = kind in ("classifier", "encoder_decoder")
        decoding: dict[str, Any] = {}
        sampling = self.special.sampling
        if kind == "decoder":
            decoding["samples"] = SamplesConfig(**dataclasses.asdict(sampling))
        elif kind == "encoder_decoder":
            search = self.special.search or BeamSearchConfig(
                beam_size=1,
                no_repeat_ngram_size=sampling.no_repeat_ngram_size,
                min_new_tokens=search_min_new_tokens(sampling),
            )
            decoding["translation"] = TranslationConfig(**dataclasses.asdict(search))
        return ExperimentConfig(
            model=model,
            data=DataConfig(source=_SOURCES[kind]),
            tokenizer=TokenizerConfig(kind="pretrained", joint=model.source_vocab_size is None),
            optimizer=AdamWConfig(learning_rate=1e-5),
            training=TrainingConfig(
                steps=1,
                batch_size=None if in_rows else _ROWS,
                batch_tokens=_TOKENS if in_rows else None,
            ),
            **decoding,
        )

    def read_params(self, runner: Runner) -> Any:
        """Reads the parameters to the devices on which the runner places them.

        Raises:
            CheckpointError: the weights do not match the config, or are damaged.
        """
        template = runner.template(self.opened.shapes)
        return self.opened.read_params(jax.tree.map(lambda leaf: leaf.sharding, template))

    @property
    def task(self) -> Task:
        """The task that the model was trained for.

        Raises:
            ConfigError: it is an encoder without a head.
            DataError: the folder has no tokenizer.
        """
        if self.opened.kind == "pooled":
            raise ConfigError(
                f"{self.opened.path} holds an encoder without a head, which predicts nothing by "
                "itself; load it in Python with interop.load_huggingface, or start a classifier "
                "from it with --init-from"
            )
        kind, config = task_class(self.config), self.config
        tokenizers = required(self.tokenizers, self.opened.path)[-kind.num_tokenizers :]
        settings: dict[str, Any] = {"decoding": decoding_of(self.opened, self.special)}
        if kind is LanguageModelTask and self.chat_template is not None:
            kind, settings["chat_template"] = ChatTask, self.chat_template
        if kind is ClassificationTask:
            settings["classes"] = self.opened.class_names
            settings["problem_type"] = self.opened.problem_type
        return kind(config=config, tokenizers=tokenizers, **settings)
