"""Keys of a config that are for some values of another key alone."""

import functools

import pytest

from jaxformer.config import (
    DataConfig,
    MixtureSourceConfig,
    ScheduleConfig,
    SyntheticConfig,
    TokenizerConfig,
    TrainingConfig,
)
from tests.small_config import assert_refused, model

training = functools.partial(TrainingConfig, steps=1, batch_size=1)
encoder = functools.partial(model, architecture="encoder")
synthetic, own_files = SyntheticConfig(max_len=5), ("phrasebook", "copy", "reverse", "sort")
MIXTURE = (MixtureSourceConfig(name="web", paths=("web/*.txt",), weight=1.0),)


# A class, a key and a value; another key, and values of it that refuse the first.
@pytest.mark.parametrize(
    ("make", "name", "value", "other", "wrong"),
    [
        (DataConfig, "paths", ("a",), "source", ("python", *own_files)),
        (DataConfig, "validation_paths", ("a",), "source", own_files),
        (DataConfig, "validation_fraction", 0.2, "source", own_files),
        (DataConfig, "field", "chat", "source", ("python", "conversations")),
        (DataConfig, "errors", "skip", "source", ("python", "pairs")),
        (DataConfig, "packing", "documents", "source", ("pairs", "labelled", "sort")),
        (DataConfig, "synthetic", synthetic, "source", ("python", "files", "pairs", "labelled")),
        (DataConfig, "mixture", MIXTURE, "source", ("python",)),
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
