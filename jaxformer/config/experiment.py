"""The experiment config with its decoding settings, and the checks across its parts."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Literal

from jaxformer.config.checks import (
    Config,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    UpToOne,
    within,
)
from jaxformer.config.data import SOURCES, DataConfig, TokenizerConfig, Yields
from jaxformer.config.model import ModelConfig
from jaxformer.config.optimizers import AdamWConfig, OptimizerConfig, ScheduleConfig
from jaxformer.config.training import LoraConfig, MeshConfig, TrainingConfig

# What a data source must yield to train each architecture.
_TRAINED_ON: dict[str, set[Yields]] = {
    "decoder": {"stream", "conversations"},
    "encoder": {"stream", "labelled"},
    "encoder_decoder": {"pairs"},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingConfig(Config):
    """Sampling of the next token from the logits; settings apply in the order listed.

    Args:
        repetition_penalty: penalty on tokens already in the text: divides their positive logits,
            and multiplies their negative ones (Keskar et al., CTRL, 2019); 1 = no penalty.
        no_repeat_ngram_size: size of n-grams that may occur at most once in a text, including its
            prompt (Paulus et al., 2018); 0 = no limit.
        min_length: minimum number of tokens, including the prompt, before a text may end; not used
            if min_new_tokens is set.
        min_new_tokens: minimum number of new tokens before a text may end; takes precedence over
            min_length.
        temperature: divisor of the logits; 0 takes the most likely token (greedy).
        top_k: number of most likely tokens to choose from; all if not set.
        top_p: chooses from the smallest set of most likely tokens whose total probability reaches
            this number, from 0 (the most likely alone) to 1; all tokens if not set.
        min_p: chooses from the tokens whose probability is at least min_p times that of the most
            likely token, from 0 to 1; all tokens if not set.
    """

    repetition_penalty: PositiveFloat = 1.0
    no_repeat_ngram_size: NonNegativeInt = 0
    min_length: NonNegativeInt = 0
    min_new_tokens: NonNegativeInt = 0
    temperature: NonNegativeFloat = 1.0
    top_k: PositiveInt | None = None
    top_p: UpToOne | None = None
    min_p: UpToOne | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplesConfig(SamplingConfig):
    """Samples written at the end of training: continuations, translations or predictions.

    Args:
        prompts: texts to continue, translate, fill in at [MASK], or classify; from the validation
            data if empty.
        max_new_tokens: largest number of tokens of a continuation; what fits in the context if not
            set.
    """

    prompts: tuple[str, ...] = ()
    max_new_tokens: PositiveInt | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSearchConfig(Config):
    """Beam search: keeps several hypotheses, and returns the best.

    Args:
        beam_size: number of running hypotheses; 1 = greedy.
        length_penalty: exponent e, from -5 to 5: the log-probability of a hypothesis is divided
            by its length ** e, so positive values favor long hypotheses.
        early_stopping: when to stop, once a search has beam_size finished hypotheses. true: at
            once. false: when the most probable running hypothesis, scored at its present length, is
            no better than the worst finished hypothesis. "never": when no running hypothesis can
            become better than the worst finished one.
        no_repeat_ngram_size: size of n-grams that may occur at most once in a hypothesis, including
            its start token; 0 = no limit.
        min_new_tokens: minimum number of tokens of a hypothesis before its end token.
        num_best: number of hypotheses to return, best first; at most beam_size.

    References:
        Wu et al., "Google's Neural Machine Translation System", 2016 (length penalties); Paulus et
        al., "A Deep Reinforced Model for Abstractive Summarization", 2018 (n-grams).
    """

    beam_size: PositiveInt = 4
    length_penalty: Annotated[float, within(-5, 5)] = 1.0
    early_stopping: bool | Literal["never"] = False
    no_repeat_ngram_size: NonNegativeInt = 0
    min_new_tokens: NonNegativeInt = 0
    num_best: PositiveInt = 1

    def _mistakes(self) -> Iterator[str]:
        if self.num_best > self.beam_size:
            yield f"num_best must be at most beam_size, {self.got('num_best', 'beam_size')}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationConfig(BeamSearchConfig):
    """Translation by beam search, and its metrics during training.

    Args:
        metrics_pairs: number of validation pairs, counted from the first, that are translated
            greedily at every validation to measure BLEU and chrF (needs jaxformer[eval]); 0 = none.
    """

    metrics_pairs: NonNegativeInt = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentConfig(Config):
    """Complete configuration of a training run.

    Args:
        out: run folder; "runs/NAME" for a config file NAME.toml if not set.
        init_from: what a new run starts from: a run folder, a Hugging Face folder, or a model on
            the Hugging Face Hub, "OWNER/MODEL". From a run folder, the new run takes the
            tokenizers, and the weights with the lowest validation loss (or, with "FOLDER@STEP", the
            weights of that step). The optimizer state starts fresh.
        lora: low-rank adaptation (LoRA) of the weights from init_from, which are frozen; if not
            set, all weights are trained.
        seed: seed of the initial parameters, the order of the data, dropout and the samples.
        model: architecture and sizes of the Transformer.
        data: data source and validation split.
        tokenizer: how text becomes token ids.
        optimizer: optimizer and its settings; "adamw" if the table has no `name`.
        schedule: learning-rate schedule: warmup and decay.
        training: number of steps, batch size, intervals and devices.
        mesh: how the runner "mesh" splits parameters, rows and tokens over devices.
        samples: samples written at the end of training.
        translation: beam search of an encoder-decoder, and its metrics during training.
    """

    out: str | None = None
    init_from: str | None = None
    lora: LoraConfig | None = None
    seed: NonNegativeInt = 0
    model: ModelConfig
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    optimizer: OptimizerConfig = AdamWConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    training: TrainingConfig
    mesh: MeshConfig = MeshConfig()
    samples: SamplesConfig = SamplesConfig()
    translation: TranslationConfig = TranslationConfig()

    def _mistakes(self) -> Iterator[str]:
        if self.lora is not None and self.init_from is None:
            yield (
                "lora adapts the weights of another run or model, got no init_from; set it to the "
                "folder of that run, or remove lora"
            )
        yield from self._mistakes_of_data()
        yield from self._unused_settings()
        name, has_lora = self.optimizer.name, self.lora is not None
        if self.model.mup is not None and (has_lora or name not in ("adamw", "lion")):
            yield (
                "model.mup sets learning rates of whole kernels, for an optimizer whose steps do "
                f"not depend on the size of the gradient, got optimizer.name={name!r} and "
                f"lora={self.lora}; choose 'adamw' or 'lion' without lora, or remove model.mup"
            )
        yield from self._mistakes_of_mesh()

    @property
    def data_kind(self) -> Yields:
        """Kind of data that the source yields for this architecture."""
        trained_on = _TRAINED_ON[self.model.architecture]
        return next(kind for kind in SOURCES[self.data.source] if kind in trained_on)

    @property
    def has_one_length(self) -> bool:
        """Whether all sequences have one length: windows of a stream, or packed conversations."""
        return self.data_kind in ("stream", "conversations")

    def _mistakes_of_data(self) -> Iterator[str]:
        architecture, source = self.model.architecture, self.data.source
        trained_on = _TRAINED_ON[architecture]
        usable = [name for name, kinds in SOURCES.items() if trained_on & set(kinds)]
        if source not in usable:
            yield (
                f"model.architecture {architecture!r} is trained on data.source "
                f"{', '.join(usable)}, got {source!r}"
            )
        size, lengths = "batch_tokens", "unequal lengths"
        if self.has_one_length:
            size, lengths = "batch_size", "one length"
        if getattr(self.training, size) is None:
            yield (
                f"data.source {source!r} needs training.{size}, got none: its sequences have "
                + lengths
            )
        is_trained = self.tokenizer.kind not in ("byte", "file", "pretrained")
        # A run to start from has the tokenizer, whatever it was trained on.
        if is_trained and source == "tokens" and self.init_from is None:
            yield (
                f"data.source {source!r} needs the tokenizer that made the tokens, tokenizer.kind "
                f"'file' or 'byte', got {self.tokenizer.kind!r}, which is trained on text; set "
                'kind = "file" and its path'
            )
        if self.model.pooling == "none":
            yield (
                "model.pooling 'none' is for a model that classifies each token, which no "
                "data source trains; choose 'mean' or 'first'"
            )

    def _mistakes_of_mesh(self) -> Iterator[str]:
        """Whether the mesh has an effect, and its axes divide what they split."""
        mesh, runner, model = self.mesh, self.training.runner, self.model
        if mesh != MeshConfig() and runner in ("pmap", "single"):
            yield (
                f"[mesh] has no effect with training.runner={runner!r}; remove it, or set the "
                "runner to 'mesh'"
            )
        for name, count in (("num_heads", model.num_heads), ("num_kv_heads", model.kv_heads)):
            if count % mesh.tensor:
                yield (
                    f"mesh.tensor must divide model.{name}, since heads are split over it, got "
                    f"tensor={mesh.tensor} and {name}={count}; change one of them"
                )

    def _unused_settings(self) -> Iterator[str]:
        """Settings that have no effect with this architecture and data."""
        kind, architecture = self.data_kind, self.model.architecture
        is_decoder, translates = architecture == "decoder", architecture == "encoder_decoder"
        has_effect = {
            "data.packing": is_decoder,
            "data.mask_rate": architecture == "encoder" and kind == "stream",
            "data.num_buckets": not self.has_one_length,
            "data.template": kind == "conversations",
            "model.logit_scale": kind != "labelled",
            "model.logit_softcap": kind != "labelled",
            "model.output_bias": kind != "labelled",
            "model.num_classes": kind == "labelled",
            "model.source_vocab_size": not self.tokenizer.joint,
            "tokenizer.joint": translates,
            **{f"translation.{name}": translates for name in vars(self.translation)},
            **{f"samples.{name}": is_decoder for name in vars(self.samples) if name != "prompts"},
        }
        for name, is_used in has_effect.items():
            table, key = name.split(".")
            if not is_used and getattr(self, table).sets(key):
                yield (
                    f"{name} has no effect with model.architecture={architecture!r}, data.source="
                    f"{self.data.source!r} and tokenizer.joint={self.tokenizer.joint}; remove it"
                )
