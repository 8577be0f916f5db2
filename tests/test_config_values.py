"""Which values of a config are refused, and what the defaults are."""

import dataclasses
import functools
import math

import pytest

from jaxformer.config import (
    AdafactorConfig,
    AdamWConfig,
    BeamSearchConfig,
    DataConfig,
    LionConfig,
    MeshConfig,
    MeshRule,
    MixtureSourceConfig,
    MuonConfig,
    SamplesConfig,
    SamplingConfig,
    ScheduleConfig,
    SgdConfig,
    SyntheticConfig,
    TokenizerConfig,
    TrainingConfig,
    TranslationConfig,
)
from tests.small_config import assert_refused, model, small

# A number that is not one is never above a bound.
NAN = math.nan
BY_TOKENS = TrainingConfig(steps=7, batch_tokens=99)
LABELLED = {
    "model": model(architecture="encoder"), "data": DataConfig(source="labelled"),
    "training": BY_TOKENS,
}  # fmt: skip
PAIRS = {
    "model": model(architecture="encoder_decoder"), "data": DataConfig(source="pairs"),
    "training": BY_TOKENS,
}  # fmt: skip


def part(**changes):
    """A source of a mixture."""
    return MixtureSourceConfig(**{"name": "web", "paths": ("web/*.txt",), "weight": 1.0} | changes)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TokenizerConfig(vocab_size=256), ["at least 257", "vocab_size=256"]),
        (lambda: TokenizerConfig(kind="word", vocab_size=0), ["vocab_size must be positive"]),
        (
            lambda: DataConfig(paths="a.txt"),
            ["paths must be a tuple whose items are each a string", "'a.txt'", "write (ITEM,)"],
        ),
        (lambda: DataConfig(validation_paths=["a"]), ["validation_paths must be", "['a']"]),
        (lambda: DataConfig(source="web"), ["source must be one of python, files"]),
        (lambda: DataConfig(validation_fraction=0.0), ["between 0 and 1", "=0.0"]),
        (lambda: DataConfig(validation_fraction=1.0), ["between 0 and 1", "=1.0"]),
        (lambda: part(name=""), ["1 to 60 printable characters", "name=''"]),
        (lambda: part(name="a\nb"), ["printable", "name='a\\nb'"]),
        (lambda: part(name="a" * 61), ["1 to 60 printable characters"]),
        (lambda: part(paths=()), ["source 'web' of data.mixture must have paths", "got none"]),
        (lambda: part(paths="a"), ["paths must be a tuple", "paths='a'"]),
        *(
            (
                lambda weight=weight: part(weight=weight),
                ["source 'web' of data.mixture", "positive and finite", f"weight={weight}"],
            )
            for weight in (0.0, -1.0, math.inf, NAN)
        ),
        (
            lambda: DataConfig(mixture=(part(), part(weight=2.0))),
            ["data.mixture must have different names", "'web' 2 times", "rename one"],
        ),
        (
            lambda: DataConfig(paths=("a.txt",), mixture=(part(),)),
            ["data.paths cannot be set together with data.mixture", "paths=('a.txt',)"],
        ),
        (
            lambda: DataConfig(validation_paths=("a.txt",), mixture=(part(),)),
            ["data.validation_paths cannot be set together with data.mixture", "from each source"],
        ),
        (
            lambda: DataConfig(field="body", mixture=(part(),)),
            ["data.field cannot be set together with data.mixture", "field='body'"],
        ),
        (
            lambda: DataConfig(mixture=("web",)),
            ["mixture must be a tuple whose items are each MixtureSourceConfig"],
        ),
        (lambda: AdamWConfig(learning_rate=0.0), ["learning_rate must be positive"]),
        (lambda: AdamWConfig(learning_rate=NAN), ["learning_rate must be positive"]),
        (lambda: AdamWConfig(learning_rate=1.0, eps=0.0), ["eps must be positive"]),
        (
            lambda: AdamWConfig(learning_rate=1.0, clip_norm=-0.5),
            ["clip_norm must be zero or more"],
        ),
        (
            lambda: AdamWConfig(learning_rate=1.0, weight_decay=-1.0),
            ["weight_decay must be zero"],
        ),
        (lambda: AdamWConfig(learning_rate=1.0, beta1=1.0), ["beta1 must be in [0, 1)"]),
        (lambda: AdamWConfig(learning_rate=1.0, beta2=-0.1), ["beta2 must be in [0, 1)"]),
        (lambda: ScheduleConfig(warmup_steps=-1), ["warmup_steps must be zero or more"]),
        (lambda: ScheduleConfig(final_scale=1.1), ["final_scale must be in [0, 1]"]),
        (
            lambda: ScheduleConfig(name="noam"),
            ["'noam' needs schedule.warmup_steps, got 0", "4000"],
        ),
        (
            lambda: ScheduleConfig(name="linear", warmup_steps=5, decay_steps=5),
            ["decay_steps must be larger than warmup_steps", "decay_steps=5 and warmup_steps=5"],
        ),
        (lambda: TrainingConfig(steps=0, batch_size=1), ["steps must be positive"]),
        (lambda: TrainingConfig(steps=1, batch_size=0), ["batch_size must be positive"]),
        (lambda: TrainingConfig(steps=1, batch_size=1, devices=0), ["devices must be positive"]),
        (
            lambda: TrainingConfig(steps=1, batch_size=1, cpu_devices=0),
            ["cpu_devices must be positive"],
        ),
        (
            lambda: TrainingConfig(steps=1, batch_size=1, log_every=0),
            ["log_every must be positive"],
        ),
        (lambda: TrainingConfig(steps=1, batch_size=1, eval_every=0), ["eval_every must be"]),
        (
            lambda: TrainingConfig(steps=1, batch_size=1, checkpoint_every=0),
            ["checkpoint_every must"],
        ),
        (
            lambda: TrainingConfig(steps=1, batch_size=1, keep_checkpoints=0),
            ["keep_checkpoints must"],
        ),
        (
            lambda: TrainingConfig(steps=1, batch_size=5, accumulate_steps=2),
            ["batch_size must be a multiple of accumulate_steps", "batch_size=5"],
        ),
        (lambda: SamplingConfig(temperature=-0.1), ["temperature must be zero or more"]),
        (lambda: SamplingConfig(repetition_penalty=0.0), ["repetition_penalty must be positive"]),
        (
            lambda: SamplingConfig(no_repeat_ngram_size=-1),
            ["no_repeat_ngram_size must be zero or more"],
        ),
        (lambda: SamplingConfig(min_length=-1), ["min_length must be zero or more"]),
        (lambda: BeamSearchConfig(min_new_tokens=-1), ["min_new_tokens must be zero or more"]),
        (lambda: SamplingConfig(top_k=0), ["top_k must be positive"]),
        (lambda: SamplingConfig(top_p=-0.1), ["top_p must be in [0, 1]"]),
        (lambda: SamplingConfig(top_p=1.1), ["top_p must be in [0, 1]"]),
        (lambda: SamplingConfig(min_p=-0.1), ["min_p must be in [0, 1]"]),
        (lambda: SamplesConfig(top_k=0), ["top_k must be positive"]),
        (lambda: SamplesConfig(max_new_tokens=0), ["max_new_tokens must be positive"]),
        (lambda: SyntheticConfig(num_symbols=0), ["num_symbols must be positive"]),
        (lambda: SyntheticConfig(min_len=0), ["min_len must be positive"]),
        (lambda: SyntheticConfig(num_pairs=-1), ["num_pairs must be positive"]),
        (lambda: SyntheticConfig(num_validation=0), ["num_validation must be positive"]),
        (
            lambda: SyntheticConfig(min_len=4, max_len=3),
            ["min_len must be at most max_len", "min_len=4 and max_len=3"],
        ),
        (lambda: DataConfig(mask_rate=0.0), ["mask_rate must be between 0 and 1", "=0.0"]),
        (lambda: DataConfig(mask_rate=1.0), ["mask_rate must be between 0 and 1", "=1.0"]),
        (lambda: DataConfig(num_buckets=0), ["num_buckets must be in 1 .. 8, got num_buckets=0"]),
        (lambda: DataConfig(num_buckets=9), ["num_buckets must be in 1 .. 8, got num_buckets=9"]),
        (
            lambda: TrainingConfig(steps=1),
            ["one of batch_size", "got batch_size=None and batch_tokens=None"],
        ),
        (
            lambda: TrainingConfig(steps=1, batch_size=2, batch_tokens=3),
            ["one of batch_size", "and batch_tokens", "got batch_size=2 and batch_tokens=3"],
        ),
        (lambda: TrainingConfig(steps=1, batch_tokens=0), ["batch_tokens must be positive"]),
        (
            lambda: TrainingConfig(steps=1, batch_size=1, label_smoothing=1.0),
            ["label_smoothing must be in [0, 1), got label_smoothing=1.0"],
        ),
        (
            lambda: TrainingConfig(steps=1, batch_size=1, label_smoothing=-0.1),
            ["label_smoothing must be in [0, 1)"],
        ),
        (lambda: MeshConfig(tensor=0), ["tensor must be positive"]),
        (
            lambda: MeshConfig(rules=("*",)),
            ["rules must be a tuple whose items are each MeshRule", "('*',)"],
        ),
        (lambda: MeshRule(path="", axes=()), ["path must be a pattern"]),
        (lambda: MuonConfig(learning_rate=1.0, update_rms=-1.0), ["update_rms must be zero"]),
        (lambda: MuonConfig(learning_rate=1.0, beta=1.0), ["beta must be in [0, 1)"]),
        (
            lambda: AdafactorConfig(learning_rate=1.0, clip_threshold=0.5),
            ["clip_threshold must be at least 1", "=0.5"],
        ),
        (lambda: AdafactorConfig(learning_rate=1.0, decay_rate=0.0), ["decay_rate must be posit"]),
        (
            lambda: ScheduleConfig(name="warmup_stable_decay", decay_steps=5),
            ["decay_start", "decay_start=None and name='warmup_stable_decay'"],
        ),
        (
            lambda: ScheduleConfig(name="linear", decay_steps=5, decay_start=3),
            ["decay_start=3 and name='linear'"],
        ),
        (
            lambda: ScheduleConfig(name="warmup_stable_decay", decay_steps=5, decay_start=5),
            ["decay_start must be in warmup_steps .. decay_steps - 1", "decay_start=5"],
        ),
        (lambda: TranslationConfig(beam_size=0), ["beam_size must be positive"]),
        (lambda: BeamSearchConfig(num_best=0), ["num_best must be positive"]),
        (
            lambda: BeamSearchConfig(beam_size=2, num_best=3),
            ["num_best must be at most beam_size", "num_best=3 and beam_size=2"],
        ),
        (
            lambda: BeamSearchConfig(early_stopping="nevr"),
            ["early_stopping must be one of True, False, never, got 'nevr'", "mean 'never'?"],
        ),
        (lambda: BeamSearchConfig(early_stopping=1), ["one of True, False, never, got 1"]),
        (lambda: BeamSearchConfig(early_stopping=None), ["True, False, never, got None"]),
        (lambda: SgdConfig(learning_rate=0.0), ["learning_rate must be positive"]),
        (lambda: SgdConfig(learning_rate=1.0, momentum=1.0), ["momentum must be in [0, 1)"]),
        (lambda: SgdConfig(learning_rate=1.0, clip_norm=-1.0), ["clip_norm must be zero or"]),
        (
            lambda: SgdConfig(learning_rate=1.0, momentum=0.0, nesterov=True),
            ["nesterov needs momentum", "momentum=0", "remove nesterov"],
        ),
        (lambda: LionConfig(learning_rate=NAN), ["learning_rate must be positive"]),
        (lambda: LionConfig(learning_rate=1.0, beta2=1.0), ["beta2 must be in [0, 1)"]),
        (lambda: LionConfig(learning_rate=1.0, weight_decay=-1.0), ["weight_decay must be zero"]),
        (lambda: LionConfig(name="adamw", learning_rate=1.0), ["name must be one of lion"]),
        (lambda: small(optimizer="lion"), ["optimizer of name 'lion' needs learning_rate"]),
        (lambda: small(optimizer=ScheduleConfig()), ["optimizer must be one of AdamWConfig"]),
        (lambda: TranslationConfig(metrics_pairs=-1), ["metrics_pairs must be zero or more"]),
        (
            lambda: TranslationConfig(length_penalty=NAN),
            ["length_penalty must be in -10", "nan"],
        ),
        *(
            (
                lambda architecture=architecture, source=source: small(
                    model=model(architecture=architecture),
                    data=DataConfig(source=source),
                    training=TrainingConfig(steps=1, batch_size=1),
                ),
                [
                    f"model.architecture {architecture!r} is trained on data.source",
                    f"got {source!r}",
                ],
            )
            for architecture, sources in {
                "decoder": ("pairs", "labelled", "copy", "reverse", "sort"),
                "encoder": ("pairs", "copy", "reverse", "sort"),
                "encoder_decoder": ("python", "files", "labelled"),
            }.items()
            for source in sources
        ),
        (
            lambda: small(training=TrainingConfig(steps=1, batch_tokens=9)),
            ["data.source 'files' needs training.batch_size", "have one length"],
        ),
        *(
            (
                lambda architecture=architecture, source=source: small(
                    model=model(architecture=architecture), data=DataConfig(source=source)
                ),
                [f"data.source {source!r} needs training.batch_tokens", "unequal lengths"],
            )
            for architecture, source in (
                ("encoder", "labelled"),
                ("encoder", "phrasebook"),
                ("encoder_decoder", "pairs"),
                ("encoder_decoder", "sort"),
            )
        ),
        (
            lambda: small(
                model=model(num_classes=2), data=DataConfig(source="conversations", paths=("a",))
            ),
            ["num_classes is for labeled texts", "='conversations' and num_classes=2"],
        ),
        (
            lambda: small(
                **LABELLED | {"model": model(architecture="encoder", num_classes=2, pooling="none")}
            ),
            ["pooling 'none' is for a model that classifies each token", "'mean' or 'first'"],
        ),
        (
            lambda: small(model=model(architecture="encoder", num_classes=2)),
            ["num_classes is for labeled texts", "data.source='files' and num_classes=2"],
        ),
        (
            lambda: small(
                model=model(architecture="encoder"), data=DataConfig(packing="documents")
            ),
            ["data.packing has no effect with model.architecture='encoder'", "remove it"],
        ),
        (
            lambda: small(data=DataConfig(mask_rate=0.2)),
            ["data.mask_rate has no effect with model.architecture='decoder'"],
        ),
        (
            lambda: small(**LABELLED | {"data": DataConfig(source="labelled", mask_rate=0.2)}),
            ["data.mask_rate has no effect", "='encoder' and data.source='labelled'"],
        ),
        (
            lambda: small(data=DataConfig(num_buckets=2)),
            ["data.num_buckets has no effect", "data.source='files'"],
        ),
        (
            lambda: small(tokenizer=TokenizerConfig(kind="byte", joint=False)),
            ["tokenizer.joint has no effect with model.architecture='decoder'"],
        ),
        (
            lambda: small(**LABELLED, translation=TranslationConfig(beam_size=2)),
            ["translation has no effect with model.architecture='encoder'"],
        ),
        *(
            (
                lambda kind=kind: small(**kind, samples=SamplesConfig(top_k=2)),
                ["samples, except for its prompts, has no effect"],
            )
            for kind in (LABELLED, PAIRS)
        ),
        (
            lambda: small(
                **PAIRS | {"model": model(architecture="encoder_decoder", source_vocab_size=9)}
            ),
            ["source_vocab_size is for separate vocabularies, got 9", "joint = false"],
        ),
        (lambda: small(seed=-1), ["seed must be zero or more, got seed=-1"]),
        (lambda: small(seed=2**31), ["seed must be at most 2,147,483,647, got seed=2147483648"]),
    ],
)
def test_configs_refuse_impossible_values_by_name(make, words):
    assert_refused(make, words)


def test_a_key_is_refused_with_values_of_another_that_it_is_not_for():
    """By class, key and value: another key, and values of it that refuse the first."""
    training = functools.partial(TrainingConfig, steps=1, batch_size=1)
    encoder = functools.partial(model, architecture="encoder")
    synthetic, own_files = SyntheticConfig(max_len=5), ("phrasebook", "copy", "reverse", "sort")
    for make, name, value, other, wrong in (
        (DataConfig, "paths", ("a",), "source", ("python", *own_files)),
        (DataConfig, "validation_paths", ("a",), "source", own_files),
        (DataConfig, "validation_fraction", 0.2, "source", own_files),
        (DataConfig, "field", "chat", "source", ("python", "conversations")),
        (DataConfig, "errors", "skip", "source", ("python", "pairs")),
        (DataConfig, "packing", "documents", "source", ("pairs", "labelled", "sort")),
        (DataConfig, "synthetic", synthetic, "source", ("python", "files", "pairs", "labelled")),
        (DataConfig, "mixture", (part(),), "source", ("python",)),
        (TokenizerConfig, "vocab_size", 300, "kind", ("byte", "character", "file")),
        (TokenizerConfig, "path", "a.json", "kind", ("byte", "bpe")),
        (TokenizerConfig, "end_of_text", "</s>", "kind", ("byte", "bpe")),
        (TokenizerConfig, "joint", False, "kind", ("file",)),
        (ScheduleConfig, "decay_steps", 5, "name", ("constant", "noam")),
        (ScheduleConfig, "final_scale", 0.0, "name", ("constant", "noam")),
        (training, "devices", 1, "runner", ("single",)),
        (model, "num_encoder_layers", 2, "architecture", ("decoder", "encoder")),
        (model, "source_vocab_size", 5, "architecture", ("decoder", "encoder")),
        (model, "num_classes", 3, "architecture", ("encoder_decoder",)),
        (model, "pooler", "tanh", "architecture", ("decoder", "encoder_decoder")),
        (model, "head_bias", True, "architecture", ("decoder", "encoder_decoder")),
        (model, "num_token_types", 2, "architecture", ("encoder_decoder",)),
        (model, "residual", "parallel", "architecture", ("encoder_decoder",)),
        (encoder, "residual", "parallel", "norm_position", ("post", "sandwich", "output")),
        (model, "qk_norm_over", "all_heads", "qk_norm", (False,)),
        (model, "embedding_scale", 2.0, "scale_embeddings", (True,)),
    ):
        for wrong_value in wrong:
            got = f"got {other}={wrong_value!r} and {name}={value!r}; remove {name}, or change"
            assert_refused(
                lambda make=make, changes={name: value, other: wrong_value}: make(**changes),
                [f"{name} is for {other} ", f"{got} {other}"],
            )


def test_configs_accept_values_at_their_bounds():
    ScheduleConfig(name="noam", warmup_steps=1)
    TokenizerConfig(vocab_size=257)
    TokenizerConfig(kind="word")
    AdamWConfig(learning_rate=1.0, beta1=0.0, weight_decay=0.0, clip_norm=0.0)
    ScheduleConfig(name="cosine", warmup_steps=4, decay_steps=5, final_scale=0.0)
    ScheduleConfig(name="linear", decay_steps=5, final_scale=1.0)
    SamplingConfig(temperature=0.0, top_k=1, top_p=1.0, min_p=0.0)
    SamplingConfig(min_p=1.0)


@pytest.mark.parametrize(
    ("architecture", "sources"),
    [
        ("decoder", ["python", "files", "conversations", "phrasebook"]),
        ("encoder", ["python", "files", "labelled", "phrasebook"]),
        ("encoder_decoder", ["pairs", "phrasebook", "copy", "reverse", "sort"]),
    ],
)
def test_every_architecture_has_its_sources(architecture, sources):
    for source in sources:
        one_length = architecture == "decoder" or source in ("python", "files")
        config = small(
            model=model(architecture=architecture), data=DataConfig(source=source),
            training=TrainingConfig(steps=7, **{"batch_size" if one_length else "batch_tokens": 9}),
        )  # fmt: skip
        assert config.has_one_length == one_length


def test_settings_that_have_an_effect_are_accepted():
    small(data=DataConfig(packing="documents"), samples=SamplesConfig(top_k=2))
    masked = model(architecture="encoder")
    small(model=masked, data=DataConfig(mask_rate=0.2), samples=SamplesConfig(prompts=("a",)))
    labelled = DataConfig(source="labelled", num_buckets=1, validation_fraction=0.2)
    small(**LABELLED | {"data": labelled, "model": model(architecture="encoder", num_classes=2)})
    small(**PAIRS, tokenizer=TokenizerConfig(kind="byte", joint=False))
    own = model(architecture="encoder_decoder", source_vocab_size=9)
    small(**PAIRS | {"model": own}, tokenizer=TokenizerConfig(kind="byte", joint=False))
    small(**PAIRS, translation=TranslationConfig(beam_size=1, length_penalty=-0.5, metrics_pairs=9))
    BeamSearchConfig(beam_size=3, num_best=3, early_stopping="never")
    SgdConfig(learning_rate=1.0, momentum=0.0, clip_norm=0.0)
    LionConfig(learning_rate=1.0, beta1=0.0, weight_decay=0.0)
    DataConfig(source="python", validation_paths=("a",))
    DataConfig(source="pairs", paths=("a",), validation_paths=("b",))
    DataConfig(source="sort", synthetic=SyntheticConfig(min_len=3, max_len=3), num_buckets=8)
    TrainingConfig(steps=1, batch_tokens=5, accumulate_steps=2)  # whoever makes batches sees to it
    TrainingConfig(steps=1, batch_size=1, label_smoothing=0.0, runner="single")


def test_configs_are_hashable_frozen_and_keyword_only():
    config = small()
    assert hash(config.model) == hash(model())
    assert {config: 1}[small()] == 1
    assert config.model != model(d_ff=5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.model.d_ff = 5
    with pytest.raises(TypeError):
        SamplingConfig(1.0)
