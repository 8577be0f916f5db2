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
from tests.small_config import assert_refused, described, model, rows_of, small

# A number that is not one is never above a bound.
NAN = math.nan


def part(**changes):
    """A source of a mixture."""
    return MixtureSourceConfig(**{"name": "web", "paths": ("web/*.txt",), "weight": 1.0} | changes)


def positive(*names):
    """Rows of keys that must be positive."""
    return [({name: 0}, f"{name} must be positive") for name in names]


REQUIRED = {
    TrainingConfig: {"steps": 1, "batch_size": 1},
    **dict.fromkeys(
        (AdamWConfig, SgdConfig, LionConfig, MuonConfig, AdafactorConfig), {"learning_rate": 1.0}
    ),
}
# By kind of config: its keys with wrong values, and parts of the message.
REFUSED = {
    TokenizerConfig: [
        ({"vocab_size": 256}, "at least 257", "vocab_size=256"),
        ({"kind": "word", "vocab_size": 0}, "vocab_size must be positive"),
    ],
    DataConfig: [
        ({"paths": "a.txt"}, "paths must be a tuple whose items are each a string", "'a.txt'",
         "write (ITEM,)"),
        ({"validation_paths": ["a"]}, "validation_paths must be", "['a']"),
        ({"source": "web"}, "source must be one of python, files"),
        ({"validation_fraction": 0.0}, "between 0 and 1", "=0.0"),
        ({"validation_fraction": 1.0}, "between 0 and 1", "=1.0"),
        ({"mixture": (part(), part(weight=2.0))}, "data.mixture must have different names",
         "'web' 2 times", "rename one"),
        ({"paths": ("a.txt",), "mixture": (part(),)},
         "data.paths cannot be set together with data.mixture", "paths=('a.txt',)"),
        ({"validation_paths": ("a.txt",), "mixture": (part(),)},
         "data.validation_paths cannot be set together with data.mixture", "from each source"),
        ({"field": "body", "mixture": (part(),)},
         "data.field cannot be set together with data.mixture", "field='body'"),
        ({"mixture": ("web",)}, "mixture must be a tuple whose items are each MixtureSourceConfig"),
        ({"mask_rate": 0.0}, "mask_rate must be between 0 and 1", "=0.0"),
        ({"mask_rate": 1.0}, "mask_rate must be between 0 and 1", "=1.0"),
        ({"num_buckets": 0}, "num_buckets must be in 1 .. 8, got num_buckets=0"),
        ({"num_buckets": 9}, "num_buckets must be in 1 .. 8, got num_buckets=9"),
    ],
    part: [
        ({"name": ""}, "1 to 60 printable characters", "name=''"),
        ({"name": "a\nb"}, "printable", "name='a\\nb'"),
        ({"name": "a" * 61}, "1 to 60 printable characters"),
        ({"paths": ()}, "source 'web' of data.mixture must have paths", "got none"),
        ({"paths": "a"}, "paths must be a tuple", "paths='a'"),
        *(
            ({"weight": weight}, "weight must be positive", f"weight={weight}")
            for weight in (0.0, -1.0, math.inf, NAN)
        ),
    ],
    AdamWConfig: [
        *positive("eps", "learning_rate"),
        ({"learning_rate": NAN}, "learning_rate must be positive"),
        *(
            ({name: value}, f"{name} must be")
            for name in ("learning_rate", "weight_decay", "clip_norm")
            for value in (math.inf, NAN)
        ),
        ({"clip_norm": -0.5}, "clip_norm must be zero or more"),
        ({"weight_decay": -1.0}, "weight_decay must be zero"),
        ({"beta1": 1.0}, "beta1 must be in [0, 1)"),
        ({"beta2": -0.1}, "beta2 must be in [0, 1)"),
    ],
    ScheduleConfig: [
        ({"warmup_steps": -1}, "warmup_steps must be zero or more"),
        ({"final_scale": 1.1}, "final_scale must be in [0, 1]"),
        ({"name": "noam"}, "'noam' needs schedule.warmup_steps, got 0", "4000"),
        ({"name": "linear", "warmup_steps": 5, "decay_steps": 5},
         "decay_steps must be larger than warmup_steps", "decay_steps=5 and warmup_steps=5"),
        ({"name": "warmup_stable_decay", "decay_steps": 5}, "decay_start",
         "decay_start=None and name='warmup_stable_decay'"),
        ({"name": "linear", "decay_steps": 5, "decay_start": 3}, "decay_start=3 and name='linear'"),
        ({"name": "warmup_stable_decay", "decay_steps": 5, "decay_start": 5},
         "decay_start must be in warmup_steps .. decay_steps - 1", "decay_start=5"),
    ],
    TrainingConfig: [
        *positive(
            "steps", "batch_size", "devices", "cpu_devices", "log_every",
            "eval_every", "checkpoint_every", "keep_checkpoints",
        ),
        ({"batch_size": 5, "accumulate_steps": 2},
         "batch_size must be a multiple of accumulate_steps", "batch_size=5"),
        ({"batch_size": None}, "one of batch_size", "got batch_size=None and batch_tokens=None"),
        ({"batch_size": 2, "batch_tokens": 3}, "one of batch_size", "and batch_tokens",
         "got batch_size=2 and batch_tokens=3"),
        ({"batch_size": None, "batch_tokens": 0}, "batch_tokens must be positive"),
        ({"label_smoothing": 1.0}, "label_smoothing must be in [0, 1), got label_smoothing=1.0"),
        ({"label_smoothing": -0.1}, "label_smoothing must be in [0, 1)"),
    ],
    SamplingConfig: [
        *positive("top_k"),
        ({"temperature": -0.1}, "temperature must be zero or more"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be positive"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size must be zero or more"),
        ({"min_length": -1}, "min_length must be zero or more"),
        ({"top_p": -0.1}, "top_p must be in [0, 1]"),
        ({"top_p": 1.1}, "top_p must be in [0, 1]"),
        ({"min_p": -0.1}, "min_p must be in [0, 1]"),
    ],
    BeamSearchConfig: [
        *positive("num_best"),
        ({"min_new_tokens": -1}, "min_new_tokens must be zero or more"),
        ({"beam_size": 2, "num_best": 3}, "num_best must be at most beam_size",
         "num_best=3 and beam_size=2"),
        ({"early_stopping": "nevr"},
         "early_stopping must be one of True, False, never, got 'nevr'", "mean 'never'?"),
        ({"early_stopping": 1}, "one of True, False, never, got 1"),
        ({"early_stopping": None}, "True, False, never, got None"),
    ],
    SamplesConfig: [
        *positive("top_k", "max_new_tokens"),
    ],
    SyntheticConfig: [
        *positive("num_symbols", "min_len", "num_validation"),
        ({"num_pairs": -1}, "num_pairs must be positive"),
        ({"min_len": 4, "max_len": 3}, "min_len must be at most max_len",
         "min_len=4 and max_len=3"),
    ],
    MeshConfig: [
        *positive("tensor"),
        ({"rules": ("*",)}, "rules must be a tuple whose items are each MeshRule", "('*',)"),
    ],
    MeshRule: [
        ({"path": "", "axes": ()}, "path must be a pattern"),
    ],
    MuonConfig: [
        ({"update_rms": -1.0}, "update_rms must be zero"),
        ({"beta": 1.0}, "beta must be in [0, 1)"),
    ],
    AdafactorConfig: [
        *positive("decay_rate"),
        ({"clip_threshold": 0.5}, "clip_threshold must be at least 1", "=0.5"),
    ],
    TranslationConfig: [
        *positive("beam_size"),
        ({"metrics_pairs": -1}, "metrics_pairs must be zero or more"),
        ({"length_penalty": NAN}, "length_penalty must be in -10", "nan"),
    ],
    SgdConfig: [
        *positive("learning_rate"),
        ({"momentum": 1.0}, "momentum must be in [0, 1)"),
        ({"clip_norm": -1.0}, "clip_norm must be zero or"),
        ({"momentum": 0.0, "nesterov": True}, "nesterov needs momentum", "momentum=0",
         "remove nesterov"),
    ],
    LionConfig: [
        ({"learning_rate": NAN}, "learning_rate must be positive"),
        ({"beta2": 1.0}, "beta2 must be in [0, 1)"),
        ({"weight_decay": -1.0}, "weight_decay must be zero"),
        ({"name": "adamw"}, "name must be one of lion"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("row", rows_of(REFUSED), ids=described)
def test_configs_refuse_impossible_values_by_name(row):
    kind, changes, *parts = row
    assert_refused(functools.partial(kind, **REQUIRED.get(kind, {}) | changes), parts)


def test_configs_accept_values_at_their_bounds():
    ScheduleConfig(name="noam", warmup_steps=1)
    TokenizerConfig(vocab_size=257)
    TokenizerConfig(kind="word")
    AdamWConfig(learning_rate=1.0, beta1=0.0, weight_decay=0.0, clip_norm=0.0)
    ScheduleConfig(name="cosine", warmup_steps=4, decay_steps=5, final_scale=0.0)
    ScheduleConfig(name="linear", decay_steps=5, final_scale=1.0)
    SamplingConfig(temperature=0.0, top_k=1, top_p=1.0, min_p=0.0)
    SamplingConfig(min_p=1.0)


def test_configs_are_hashable_frozen_and_keyword_only():
    config = small()
    assert hash(config.model) == hash(model())
    assert {config: 1}[small()] == 1
    assert config.model != model(d_ff=5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.model.d_ff = 5
    with pytest.raises(TypeError):
        SamplingConfig(1.0)
