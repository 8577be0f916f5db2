"""Which tables of a config go together."""

import functools

import pytest

from jaxformer.config import (
    BeamSearchConfig,
    DataConfig,
    LionConfig,
    SamplesConfig,
    ScheduleConfig,
    SgdConfig,
    SyntheticConfig,
    TokenizerConfig,
    TrainingConfig,
    TranslationConfig,
)
from tests.small_config import assert_refused, model, small

BY_TOKENS = TrainingConfig(steps=7, batch_tokens=99)
LABELLED = {
    "model": model(architecture="encoder"), "data": DataConfig(source="labelled"),
    "training": BY_TOKENS,
}  # fmt: skip
PAIRS = {
    "model": model(architecture="encoder_decoder"), "data": DataConfig(source="pairs"),
    "training": BY_TOKENS,
}  # fmt: skip


# Tables that do not go together, and parts of the message.
REFUSED = [
    ({"optimizer": "lion"}, "optimizer of name 'lion' needs learning_rate"),
    ({"optimizer": ScheduleConfig()}, "optimizer must be one of AdamWConfig"),
    ({"training": TrainingConfig(steps=1, batch_tokens=9)},
     "data.source 'files' needs training.batch_size", "have one length"),
    ({"model": model(num_classes=2), "data": DataConfig(source="conversations", paths=("a",))},
     "num_classes is for labeled texts", "='conversations' and num_classes=2"),
    (LABELLED | {"model": model(architecture="encoder", num_classes=2, pooling="none")},
     "pooling 'none' is for a model that classifies each token", "'mean' or 'first'"),
    ({"model": model(architecture="encoder", num_classes=2)},
     "num_classes is for labeled texts", "data.source='files' and num_classes=2"),
    ({"model": model(architecture="encoder"), "data": DataConfig(packing="documents")},
     "data.packing has no effect with model.architecture='encoder'", "remove it"),
    ({"data": DataConfig(mask_rate=0.2)},
     "data.mask_rate has no effect with model.architecture='decoder'"),
    (LABELLED | {"data": DataConfig(source="labelled", mask_rate=0.2)},
     "data.mask_rate has no effect", "='encoder' and data.source='labelled'"),
    ({"data": DataConfig(num_buckets=2)}, "data.num_buckets has no effect",
     "data.source='files'"),
    ({"tokenizer": TokenizerConfig(kind="byte", joint=False)},
     "tokenizer.joint has no effect with model.architecture='decoder'"),
    ({**LABELLED, "translation": TranslationConfig(beam_size=2)},
     "translation has no effect with model.architecture='encoder'"),
    (PAIRS | {"model": model(architecture="encoder_decoder", source_vocab_size=9)},
     "source_vocab_size is for separate vocabularies, got 9", "joint = false"),
    *(
        (kind | {"samples": SamplesConfig(top_k=2)},
         "samples, except for its prompts, has no effect")
        for kind in (LABELLED, PAIRS)
    ),
    *(
        ({"model": model(architecture=architecture), "data": DataConfig(source=source)},
         f"model.architecture {architecture!r} is trained on data.source", f"got {source!r}")
        for architecture, sources in {
            "decoder": ("pairs", "labelled", "copy", "reverse", "sort"),
            "encoder": ("pairs", "copy", "reverse", "sort"),
            "encoder_decoder": ("python", "files", "labelled"),
        }.items()
        for source in sources
    ),
    *(
        ({"model": model(architecture=architecture), "data": DataConfig(source=source)},
         f"data.source {source!r} needs training.batch_tokens", "unequal lengths")
        for architecture, source in (
            ("encoder", "labelled"), ("encoder", "phrasebook"), ("encoder_decoder", "pairs"),
            ("encoder_decoder", "sort"),
        )
    ),
    ({"seed": -1}, "seed must be zero or more, got seed=-1"),
    ({"seed": 2**31}, "seed must be at most 2,147,483,647, got seed=2147483648"),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_tables_that_do_not_go_together_are_refused(row):
    changes, *parts = row
    assert_refused(functools.partial(small, **changes), parts)


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
    separate = model(architecture="encoder_decoder", source_vocab_size=9)
    small(**PAIRS | {"model": separate}, tokenizer=TokenizerConfig(kind="byte", joint=False))
    small(**PAIRS, translation=TranslationConfig(beam_size=1, length_penalty=-0.5, metrics_pairs=9))
    BeamSearchConfig(beam_size=3, num_best=3, early_stopping="never")
    SgdConfig(learning_rate=1.0, momentum=0.0, clip_norm=0.0)
    LionConfig(learning_rate=1.0, beta1=0.0, weight_decay=0.0)
    DataConfig(source="python", validation_paths=("a",))
    DataConfig(source="pairs", paths=("a",), validation_paths=("b",))
    DataConfig(source="sort", synthetic=SyntheticConfig(min_len=3, max_len=3), num_buckets=8)
    TrainingConfig(steps=1, batch_tokens=5, accumulate_steps=2)  # whoever makes batches sees to it
    TrainingConfig(steps=1, batch_size=1, label_smoothing=0.0, runner="single")
