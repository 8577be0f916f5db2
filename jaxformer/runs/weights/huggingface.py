"""Weights of a Hugging Face folder, with the config and the text model that fit them."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping
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
from jaxformer.errors import CheckpointError, ConfigError, DataError
from jaxformer.interop import (
    HuggingFaceFolder,
    HuggingFaceModel,
    SpecialTokens,
    Tokenizers,
    load_adapter,
    load_chat_template,
    open_huggingface,
)
from jaxformer.interop.adapters import ADAPTER_WEIGHTS
from jaxformer.interop.generation_config import SEARCH, search_min_new_tokens
from jaxformer.interop.hub import is_model_id, local_folder
from jaxformer.interop.model_folders import ADAPTER_CONFIG, CONFIG
from jaxformer.runs.data.prepare import within_tables
from jaxformer.runs.folder.files import is_run
from jaxformer.runs.text_models.classifier import Classifier
from jaxformer.runs.text_models.language_model import LanguageModel
from jaxformer.runs.text_models.masked import MaskedModel
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.runs.text_models.translator import Translator
from jaxformer.runs.weights.source import WeightSource
from jaxformer.storage import as_path, lexists, read_object, sha256
from jaxformer.training import combine_low_rank, merge_low_rank
from jaxformer.training.parallel import Runner

# The kind of data and the text model of each kind of folder.
_MODELS: dict[str, tuple[str, type[TextModel]]] = {
    "decoder": ("files", LanguageModel),
    "masked": ("files", MaskedModel),
    "pooled": ("files", MaskedModel),
    "classifier": ("labelled", Classifier),
    "encoder_decoder": ("pairs", Translator),
}


def is_huggingface(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a Hugging Face folder, or could be a model id: OWNER/MODEL."""
    folder = as_path(path)
    if lexists(folder):
        return (lexists(folder / CONFIG) or is_adapter(folder)) and not is_run(folder)
    return is_model_id(folder)


def is_adapter(folder: pathlib.Path) -> bool:
    """Whether a folder has an adapter of PEFT, and no model."""
    return lexists(folder / ADAPTER_CONFIG) and not lexists(folder / CONFIG)


@dataclasses.dataclass(eq=False)
class HuggingFaceWeights(WeightSource):
    """A Hugging Face folder with the `options` of `open_huggingface`; a PEFT adapter is merged."""

    source_language: str | None = None
    target_language: str | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    base: str | os.PathLike[str] | None = None

    @functools.cached_property
    def opened(self) -> HuggingFaceFolder:
        """The folder, whose config and names of tensors were read; a model id is downloaded."""
        if not is_adapter(self.folder):
            return open_huggingface(self.folder, **self.options)
        values = read_object(self.folder / ADAPTER_CONFIG)
        base = self.base or values.get("base_model_name_or_path")
        remedy = "pass the location of its model: --base FOLDER, in Python base=FOLDER"
        if base is None:
            raise CheckpointError(f"{self.folder} has an adapter that names no model; {remedy}")
        try:
            return open_huggingface(local_folder(base), **self.options)
        except CheckpointError as error:
            raise CheckpointError(
                f"{self.folder} has only an adapter, and its model cannot be read: {error}; "
                f"{remedy}"
            ) from error

    @functools.cached_property
    def folder(self) -> pathlib.Path:
        """The folder, or that of the download."""
        return local_folder(self.path)

    @functools.cached_property
    def _tokens(self) -> tuple[Tokenizers | None, SpecialTokens]:
        """Tokenizers of sources and targets, if there are any, and special tokens."""
        language = self.target_language
        tokenizers = self.opened.read_tokenizers(self.source_language, language)
        target = None if tokenizers is None else tokenizers.target
        special = self.opened.read_special_tokens(target)
        if target is not None and language is not None:
            around, end = target.surrounding_tokens, target.end_of_text
            before, after = ([i for i in ids if i != end] for ids in (around.before, around.after))
            # If the language comes after a text, as in mBART, the decoder starts with it.
            if before:
                special = dataclasses.replace(special, forced_first=before[0])
            else:
                special = dataclasses.replace(special, decoder_start=after[0])
        return tokenizers, special

    @functools.cached_property
    def config(self) -> ExperimentConfig:
        """An experiment config for this model: the model and its decoding settings."""
        kind, model = self.opened.kind, self.opened.config
        if kind not in _MODELS:
            raise ConfigError(
                f"{self.folder} holds a {kind.replace('_', ' ')}, which no command can use; load "
                "it in Python with interop.load_huggingface"
            )
        decoding: dict[str, Any] = {}
        special, sampling = self._tokens[1], self._tokens[1].sampling
        if kind == "decoder":
            decoding["samples"] = SamplesConfig(**dataclasses.asdict(sampling))
        elif kind == "encoder_decoder":
            search = special.search or BeamSearchConfig(
                beam_size=1,
                no_repeat_ngram_size=sampling.no_repeat_ngram_size,
                min_new_tokens=search_min_new_tokens(sampling),
            )
            decoding["translation"] = TranslationConfig(**dataclasses.asdict(search))
        in_rows = kind in ("classifier", "encoder_decoder")
        batch: dict[str, Any] = {"batch_tokens": 4096} if in_rows else {"batch_size": 1}
        return ExperimentConfig(
            model=model,
            data=DataConfig(source=_MODELS[kind][0]),
            tokenizer=TokenizerConfig(kind="pretrained", joint=model.source_vocab_size is None),
            optimizer=AdamWConfig(learning_rate=1e-5),
            training=TrainingConfig(steps=1, **batch),  # the batches of an evaluation
            **decoding,
        )

    @functools.cached_property
    def model(self) -> TextModel:
        """The text model; for an encoder without a head, a masked language model."""
        config, (tokenizers, special) = self.config, self._tokens
        if tokenizers is None:
            raise DataError(
                f"{self.folder} must have a tokenizer, such as tokenizer.json, got none; download "
                "it, too"
            )
        opened, fields = self.opened, dict[str, Any]()
        if opened.kind == "decoder":
            fields = {"chat_template": load_chat_template(opened.path)}
        elif opened.kind == "classifier":
            fields = {"classes": opened.class_names, "problem_type": opened.problem_type}
        kind = _MODELS[opened.kind][1]
        limited = within_tables(tokenizers[-kind.num_tokenizers :], config.model)
        decoding = decoding_of(opened, special)
        return kind(config=config, tokenizers=limited, decoding=decoding, **fields)

    @functools.cached_property
    def shapes(self) -> Any:
        """Shapes and dtypes of the parameters; computes nothing."""
        return self.opened.shapes

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of `config.json` and all weights; takes as long as reading them."""
        if not is_adapter(self.folder):
            return self.opened.fingerprint
        names = (ADAPTER_CONFIG, ADAPTER_WEIGHTS)
        digests = [sha256((self.folder / name).read_bytes()) for name in names]
        return sha256(" ".join([self.opened.fingerprint, *digests]))

    def params(self, runner: Runner) -> Any:
        """Reads the parameters to the devices on which the runner places them."""
        template = runner.template(self.shapes)
        opened = self.opened
        params = opened.read_params(jax.tree.map(lambda leaf: leaf.sharding, template))
        if not is_adapter(self.folder):
            return params
        model = HuggingFaceModel(opened.config, params, model_type=opened.family.model_type)
        matrices, lora = load_adapter(self.folder, model)
        return merge_low_rank(combine_low_rank(matrices, params, scale=lora.scale))

    def require_head(self) -> None:
        """Raises ConfigError for an encoder without a head."""
        if self.opened.kind == "pooled":
            raise ConfigError(
                f"{self.folder} holds an encoder without a head, which predicts nothing by "
                "itself; load it in Python with interop.load_huggingface, or start a classifier "
                "from it with --init-from"
            )


def decoding_of(opened: HuggingFaceFolder, special: SpecialTokens) -> SpecialTokens:
    """Special tokens of a run, whose settings of sampling and search are in its config."""
    translates, generates = opened.kind == "encoder_decoder", opened.kind == "decoder"
    changed: dict[str, Any] = {
        "search": None,
        "sampling": SpecialTokens.sampling,
        "model_type": opened.family.model_type,
    }
    if not translates:
        changed |= dict.fromkeys(("decoder_start", "forced_first", "forced_last"))
    if translates or generates:
        changed["unsupported"] = {**special.unsupported, **_without_option(special, translates)}
    return dataclasses.replace(special, **changed)


def _without_option(special: SpecialTokens, translates: bool) -> dict[str, Any]:
    """Settings that have an option, but not for this kind of model."""
    settings: dict[str, Any] = {}
    if not translates:
        settings["forced_bos_token_id"] = special.forced_first
        settings["forced_eos_token_id"] = special.forced_last
        if (search := special.search) is not None and search.beam_size > 1:
            settings["num_beams"] = search.beam_size  # even if it is our default
            for name, field in SEARCH.items():
                if (value := getattr(search, field)) != getattr(BeamSearchConfig(), field):
                    settings[name] = value
    elif special.sampling.temperature > 0:  # and a search does not sample
        drawn = special.sampling
        settings = {"do_sample": True, "temperature": drawn.temperature, "top_k": drawn.top_k or 0}
        settings |= {"top_p": drawn.top_p, "min_p": drawn.min_p}
    if translates and special.sampling.repetition_penalty != 1:
        settings["repetition_penalty"] = special.sampling.repetition_penalty
    return {name: value for name, value in settings.items() if value is not None}
