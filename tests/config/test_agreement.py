"""Keys of a config that must agree with each other."""

import dataclasses
import functools
import math

import pytest

from jaxformer.config import (
    BeamSearchConfig,
    DataConfig,
    ExpertsConfig,
    LayerConfig,
    LinearScalingConfig,
    Llama3ScalingConfig,
    LoraConfig,
    MeshConfig,
    MixtureSourceConfig,
    MupConfig,
    RelativeConfig,
    RotaryConfig,
    SamplesConfig,
    ScheduleConfig,
    SgdConfig,
    SyntheticConfig,
    TokenizerConfig,
    TrainingConfig,
    TranslationConfig,
    YarnScalingConfig,
)
from jaxformer.config.training import Launch
from tests.small_config import LONGROPE, assert_refused, model, small

training = functools.partial(TrainingConfig, steps=1, batch_size=1)
encoder = functools.partial(model, architecture="encoder")
translator = functools.partial(model, architecture="encoder_decoder")
longrope = functools.partial(dataclasses.replace, LONGROPE)
yarn = functools.partial(YarnScalingConfig, factor=2.0, original_max_len=8)
part = functools.partial(MixtureSourceConfig, name="web", paths=("web/*.txt",), weight=1.0)
llama = functools.partial(Llama3ScalingConfig, factor=8.0, original_max_len=8, high_freq_factor=4.0)
OWN_FILES = ("phrasebook", "copy", "reverse", "sort")
WINDOW, WHOLE = LayerConfig(local_window_size=3), LayerConfig()
NO_NORM, DENSE = LayerConfig(attention_norm=False), LayerConfig(experts=False)
MIXTURE = ExpertsConfig(num_experts=5, num_experts_per_token=2)


# A class, a key and a value; another key, and values of it that refuse the first.
@pytest.mark.parametrize(
    ("make", "name", "value", "other", "wrong"),
    [
        (DataConfig, "paths", ("a",), "source", ("python", *OWN_FILES)),
        (DataConfig, "validation_paths", ("a",), "source", OWN_FILES),
        (DataConfig, "validation_fraction", 0.2, "source", OWN_FILES),
        (DataConfig, "field", "chat", "source", ("python", "conversations")),
        (DataConfig, "packing", "documents", "source", ("pairs", "labelled", "sort")),
        (DataConfig, "synthetic", SyntheticConfig(max_len=5), "source", ("python", "labelled")),
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
    ],
)  # fmt: skip
def test_a_key_is_refused_with_values_of_another_that_it_is_not_for(
    make, name, value, other, wrong
):
    for wrong_value in wrong:
        changes = {name: value, other: wrong_value}
        got = f"got {other}={wrong_value!r} and {name}={value!r}; remove {name}, or change"
        assert_refused(
            functools.partial(make, **changes), [f"{name} is for {other} ", f"{got} {other}"]
        )


# A config, its keys, and a part of the message.
REFUSED = [
    (TokenizerConfig, {"vocab_size": 256}, "at least 257"),
    (TokenizerConfig, {"kind": "file"}, "needs tokenizer.path"),
    (DataConfig, {"mixture": (part(), part(weight=2.0))}, "different names, got 'web' 2 times"),
    (DataConfig, {"paths": ("a.txt",), "mixture": (part(),)},
     "data.paths cannot be set together with data.mixture, got paths=('a.txt',)"),
    (DataConfig, {"field": "body", "mixture": (part(),)}, "data.field cannot be set together"),
    (SyntheticConfig, {"min_len": 4, "max_len": 3}, "got min_len=4 and max_len=3"),
    (ScheduleConfig, {"name": "noam"}, "'noam' needs schedule.warmup_steps, got 0"),
    (ScheduleConfig, {"name": "linear", "warmup_steps": 5, "decay_steps": 5},
     "decay_steps must be larger than warmup_steps"),
    (ScheduleConfig, {"name": "warmup_stable_decay", "decay_steps": 5},
     "decay_start=None and name='warmup_stable_decay'"),
    (ScheduleConfig, {"name": "linear", "decay_start": 3}, "decay_start=3 and name='linear'"),
    (ScheduleConfig, {"name": "warmup_stable_decay", "decay_steps": 5, "decay_start": 5},
     "decay_start must be in warmup_steps .. decay_steps - 1"),
    (training, {"batch_size": None}, "got batch_size=None and batch_tokens=None"),
    (training, {"batch_tokens": 3}, "got batch_size=1 and batch_tokens=3"),
    (BeamSearchConfig, {"beam_size": 2, "num_best": 3}, "got num_best=3 and beam_size=2"),
    (Launch, {"process_id": 0, "num_processes": 2}, "got coordinator=None and num_processes=2"),
    (llama, {"low_freq_factor": 4.0}, "less than high_freq_factor, got low_freq_factor=4.0"),
    (yarn, {"beta_slow": 32.0}, "got beta_slow=32.0 and beta_fast=32.0"),
    *(
        (yarn, factors, "attention_factor, or mscale and mscale_all_dim, or none")
        for factors in (
            {"mscale": 1.0}, {"mscale_all_dim": 0.5},
            {"attention_factor": 1.5, "mscale": 1.0, "mscale_all_dim": 0.5},
        )
    ),
    (longrope, {"long_factor": (1.0, math.nan)}, "long_factor must be positive numbers"),
    (longrope, {"long_factor": (1.0,)}, "the same length, got 2 and 1 numbers"),
    (RelativeConfig, {"num_buckets": 8, "max_distance": 4}, "more than num_buckets // 2"),
    (ExpertsConfig, {"num_experts": 5, "num_experts_per_token": 6}, "at most num_experts, got num"),
    *(
        (ExpertsConfig, {"num_experts": 6, "num_experts_per_token": 3, "router_scores": "sigmoid",
                         "num_groups": groups, "num_groups_per_token": of_token}, words)
        for groups, of_token, words in (
            (4, 1, "into groups of at least two, got num_groups=4 and num_experts=6"),
            (6, 6, "into groups of at least two, got num_groups=6"),
            (3, 1, "got num_groups_per_token=1 and num_groups=3 and num_experts_per_token=3, in"),
            (3, 4, "at most num_groups, and that many groups must have"),
        )
    ),
    (ExpertsConfig, {"num_experts": 6, "num_experts_per_token": 3, "num_groups": 2},
     "num_groups is for router_scores 'sigmoid'"),
    (ExpertsConfig, {"num_experts": 5, "num_experts_per_token": 2, "shared_gate": True},
     "for shared experts, got shared_gate=True and num_shared_experts=0; set num_shared_experts"),
    *((LayerConfig, {"positions": kind}, f"{kind} positions are added to the embeddings once")
      for kind in ("sinusoidal", "learned")),
    # Of a model.
    (model, {"d_model": 10}, "multiple of num_heads, got d_model=10 and num_heads=3; change one"),
    (model, {"num_kv_heads": 2}, "got num_heads=3 and num_kv_heads=2"),
    (model, {"d_model": 9}, "an even head_dim or rotary_dim, got 3"),
    (model, {"positions": RotaryConfig(rotary_dim=3)}, "an even head_dim or rotary_dim, got 3"),
    (model, {"positions": RotaryConfig(rotary_dim=8)}, "got rotary_dim=8 and head_dim=4"),
    (model, {"d_model": 9, "positions": "none", "layers": (LayerConfig(positions="rotary"),)},
     "an even head_dim or rotary_dim, got 3"),
    (model, {"positions": RotaryConfig(rotary_dim=2, scaling=LONGROPE)}, "numbers=2 and feature"),
    (model, {"num_classes": 2, "pooling": "none"}, "pooling 'none' is for an encoder"),
    (encoder, {"embedding_dim": 5}, "got embedding_dim=5 and d_model=12; set tied_"),
    (encoder, {"positions": RelativeConfig(num_buckets=5)}, "must be even, and at least 4"),
    (translator, {"positions": RelativeConfig(num_buckets=2)}, "must be even, and at least 4"),
    (encoder, {"first_layers": (LayerConfig(positions=RelativeConfig(num_buckets=5)),)},
     "must be even, and at least 4"),
    (model, {"num_layers": 2, "first_layers": (WHOLE,), "layers": (WINDOW, WHOLE)},
     "got 1 and 2 of them and num_layers=2; remove some, or raise num_layers"),
    (translator, {"num_encoder_layers": 1, "layers": (WINDOW, WHOLE)}, "num_encoder_layers=1; rem"),
    (model, {"layers": (LayerConfig(attention_norm=True),)}, "attention_norm is for first_layers"),
    (model, {"first_layers": (NO_NORM,), "norm_position": "post"}, "got norm_position='post'"),
    (model, {"first_layers": (NO_NORM, WHOLE)}, "and the same in all of them"),
    (model, {"first_layers": (DENSE,)}, "experts is for first_layers with experts in the model"),
    (model, {"layers": (DENSE,), "experts": MIXTURE}, "experts is for first_layers"),
    (model, {"first_layers": (DENSE, WHOLE), "experts": MIXTURE}, "the same in all of them"),
    (model, {"positions": "learned", "layers": (LayerConfig(positions="rotary"),)},
     "learned positions are added to the embeddings, which all layers share"),
    (model, {"d_ff": 5, "mup": MupConfig(d_model=6)}, "mup must state d_ff of the base model"),
    (model, {"mup": MupConfig(d_model=5)}, "the base model of mup is impossible: d_model must be"),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: f"{row[1]}")
def test_keys_of_a_table_that_do_not_agree_are_refused(row):
    make, changes, message = row
    assert_refused(functools.partial(make, **changes), [message])


BY_TOKENS = TrainingConfig(steps=7, batch_tokens=99)
LABELLED = {"model": encoder(), "data": DataConfig(source="labelled"), "training": BY_TOKENS}
PAIRS = {"model": translator(), "data": DataConfig(source="pairs"), "training": BY_TOKENS}
MUP = model(mup=MupConfig(d_model=12))
NO_EFFECT = "has no effect with model.architecture="

# Tables that do not go together, and a part of the message.
TABLES = [
    ({"lora": LoraConfig()}, "got no init_from; set it to the folder"),
    ({"training": BY_TOKENS}, "data.source 'files' needs training.batch_size"),
    ({**PAIRS, "training": training()}, "data.source 'pairs' needs training.batch_tokens"),
    ({"data": DataConfig(source="tokens"), "tokenizer": TokenizerConfig()},
     "needs the tokenizer that made the tokens"),
    ({"model": model(num_classes=2)}, f"model.num_classes {NO_EFFECT}'decoder'"),
    ({**LABELLED, "model": encoder(num_classes=2, pooling="none")}, "which no data source trains"),
    ({"model": encoder(), "data": DataConfig(packing="documents")}, f"data.packing {NO_EFFECT}"),
    ({"data": DataConfig(mask_rate=0.2)}, f"data.mask_rate {NO_EFFECT}'decoder'"),
    ({**LABELLED, "data": DataConfig(source="labelled", mask_rate=0.2)}, f"mask_rate {NO_EFFECT}"),
    ({"data": DataConfig(num_buckets=2)}, f"data.num_buckets {NO_EFFECT}"),
    ({"data": DataConfig(template="plain")}, f"data.template {NO_EFFECT}"),
    ({**LABELLED, "model": encoder(logit_scale=0.5)}, f"model.logit_scale {NO_EFFECT}"),
    ({**LABELLED, "model": encoder(logit_softcap=3.0)}, f"model.logit_softcap {NO_EFFECT}"),
    ({**LABELLED, "model": encoder(output_bias=True)}, f"model.output_bias {NO_EFFECT}"),
    ({"tokenizer": TokenizerConfig(kind="byte", joint=False)}, f"tokenizer.joint {NO_EFFECT}"),
    ({**LABELLED, "translation": TranslationConfig(beam_size=2)}, "translation.beam_size has no"),
    ({**LABELLED, "samples": SamplesConfig(top_k=2)}, f"samples.top_k {NO_EFFECT}"),
    ({**PAIRS, "samples": SamplesConfig(top_k=2)}, f"samples.top_k {NO_EFFECT}"),
    ({**PAIRS, "model": translator(source_vocab_size=9)}, "and tokenizer.joint=True; remove it"),
    ({"model": MUP, "optimizer": SgdConfig(learning_rate=1.0)}, "got optimizer.name='sgd'"),
    ({"model": MUP, "lora": LoraConfig(), "init_from": "a"}, "name='adamw' and lora="),
    ({"mesh": MeshConfig(fsdp=2), "training": training(runner="single")}, "[mesh] has no effect"),
    ({"mesh": MeshConfig(tensor=2)}, "mesh.tensor must divide model.num_heads"),
]  # fmt: skip


@pytest.mark.parametrize("row", TABLES, ids=lambda row: row[1])
def test_tables_that_do_not_go_together_are_refused(row):
    changes, message = row
    assert_refused(functools.partial(small, **changes), [message])


SOURCES = {
    "decoder": ["python", "files", "tokens", "conversations", "phrasebook"],
    "encoder": ["python", "files", "tokens", "labelled", "phrasebook"],
    "encoder_decoder": ["pairs", "phrasebook", "copy", "reverse", "sort"],
}


@pytest.mark.parametrize("architecture", SOURCES)
def test_every_architecture_has_its_sources(architecture):
    for source in {name for names in SOURCES.values() for name in names}:
        one_length = architecture == "decoder" or source in ("python", "files", "tokens")
        make = functools.partial(
            small, model=model(architecture=architecture), data=DataConfig(source=source),
            training=TrainingConfig(steps=7, **{"batch_size" if one_length else "batch_tokens": 9}),
        )  # fmt: skip
        if source in SOURCES[architecture]:
            assert make().has_one_length == one_length
        else:
            assert_refused(
                make, [f"{architecture!r} is trained on data.source ", f"got {source!r}"]
            )


def test_keys_that_agree_are_accepted():
    small(data=DataConfig(packing="documents"), samples=SamplesConfig(top_k=2))
    samples = SamplesConfig(prompts=("a",))
    small(model=encoder(), data=DataConfig(mask_rate=0.2), samples=samples)
    labelled = DataConfig(source="labelled", num_buckets=1, validation_fraction=0.2)
    small(**LABELLED | {"data": labelled, "model": encoder(num_classes=2)})
    separate = {"tokenizer": TokenizerConfig(kind="byte", joint=False)}
    small(**PAIRS | separate | {"model": translator(source_vocab_size=9)})
    small(**PAIRS, translation=TranslationConfig(beam_size=1, length_penalty=-0.5, metrics_pairs=9))
    BeamSearchConfig(beam_size=3, num_best=3, early_stopping="never")
    TokenizerConfig(vocab_size=257)
    DataConfig(source="python", validation_paths=("a",))
    DataConfig(source="sort", synthetic=SyntheticConfig(min_len=3, max_len=3), num_buckets=8)
    ScheduleConfig(name="noam", warmup_steps=1)
    ScheduleConfig(name="cosine", warmup_steps=4, decay_steps=5, final_scale=0.0)
    training(
        batch_size=None, batch_tokens=5, accumulate_steps=2
    )  # whoever makes batches sees to it
    model(d_model=10, head_dim=2)
    model(d_model=9, positions="learned")
    model(positions=RelativeConfig(num_buckets=2, max_distance=2))
    encoder(positions=RelativeConfig(num_buckets=4), num_classes=2)
    model(embedding_dim=5)
    encoder(embedding_dim=5, num_classes=2)  # nothing is scored
    model(num_layers=2, first_layers=(NO_NORM, NO_NORM))
    model(num_layers=2, first_layers=(LayerConfig(attention_norm=True), WHOLE))
    LinearScalingConfig(factor=1.0)
    yarn(factor=1.0, original_max_len=1, mscale=0.7, mscale_all_dim=1.0)


def test_model_config_fills_in_widths():
    config = model()
    assert (config.kv_heads, config.key_dim, config.value_dim, config.ff_dim) == (3, 4, 4, 48)
    config = model(num_kv_heads=1, head_dim=6, d_ff=5, value_head_dim=7)
    assert (config.kv_heads, config.key_dim, config.value_dim, config.ff_dim) == (1, 6, 7, 5)
    assert model(num_kv_heads=1).key_dim == 4 and config.table_dim == 12
    assert model(embedding_dim=5, tied_embeddings=False).table_dim == 5


def test_model_config_of_the_encoder_has_its_own_layers_and_vocabulary():
    config = translator(vocab_size=7, qk_norm=True, dropout_rate=0.1)
    assert config.encoder == encoder(vocab_size=7, qk_norm=True, dropout_rate=0.1)
    changed = dataclasses.replace(config, num_encoder_layers=5, source_vocab_size=9).encoder
    expected = {"num_layers": 5, "vocab_size": 9, "tied_embeddings": False}
    assert changed == dataclasses.replace(config.encoder, **expected)


def test_layer_overrides_follow_first_layers_and_pattern():
    assert model(num_layers=3).layer_overrides == (WHOLE,) * 3
    config = model(num_layers=6, first_layers=(NO_NORM,), layers=(WINDOW, WHOLE))
    assert config.layer_overrides == (NO_NORM, WINDOW, WHOLE, WINDOW, WHOLE, WINDOW)
    assert model(num_layers=2, first_layers=(WINDOW,)).layer_overrides == (WINDOW, WHOLE)
    assert model(num_layers=1, first_layers=(WINDOW,)).layer_overrides == (WINDOW,)


def test_layer_overrides_of_an_encoder_are_those_of_its_depth():
    config = translator(num_encoder_layers=5, num_layers=3, layers=(WINDOW, WHOLE))
    assert config.layer_overrides == (WINDOW, WHOLE, WINDOW)
    assert config.encoder.layer_overrides == (WINDOW, WHOLE, WINDOW, WHOLE, WINDOW)
