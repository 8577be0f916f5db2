"""What folders say about generation: taken, neutral, without effect, or refused by name."""

import json

import pytest

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.errors import ConfigError
from jaxformer.interop.generation_config import (
    SpecialTokens,
    generation_values,
    read_special_tokens,
    require_supported,
)
from jaxformer.text import byte_tokenizer, with_special_tokens

GREEDY = SamplingConfig(temperature=0.0)


def read(folder, generation=None, config=None, tokenizer_config=None, **options):
    for name, values in (
        ("generation_config.json", generation),
        ("tokenizer_config.json", tokenizer_config),
    ):
        if values is not None:
            (folder / name).write_text(json.dumps(values))
    special = read_special_tokens(folder, config or {}, **options)
    require_supported(special.unsupported)
    return special


DRAWN = {"do_sample": True, "max_new_tokens": 7}
MARIAN = {
    "bad_words_ids": [[58100], [0]], "suppress_tokens": [8, 58100], "eos_token_id": 0,
    "max_length": 512, "num_beams": 6, "length_penalty": 0.5, "early_stopping": "never",
    "num_return_sequences": 2, "min_length": 0, "use_cache": False,
}  # fmt: skip
BART = {
    "num_beams": 4, "no_repeat_ngram_size": 3, "min_length": 56, "max_length": 142,
    "length_penalty": 2.0, "early_stopping": True, "forced_bos_token_id": 0,
}  # fmt: skip
MANY = {"temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.05}


def searched(least):
    """Settings of a search with a least number of new tokens."""
    sampling = SamplingConfig(temperature=0.0, min_new_tokens=least)
    search = BeamSearchConfig(beam_size=2, min_new_tokens=least)
    return SpecialTokens(sampling=sampling, search=search)


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        (None, None, SpecialTokens(sampling=GREEDY)),
        ({"temperature": 0.6, "top_p": 0.9}, None, SpecialTokens(sampling=GREEDY)),
        (None, MARIAN, SpecialTokens(
            eos=(0,), forbidden=(58100, 8), max_length=512, sampling=GREEDY,
            search=BeamSearchConfig(
                beam_size=6, length_penalty=0.5, early_stopping="never", num_best=2
            ),
        )),
        (None, BART, SpecialTokens(
            forced_first=0, max_length=142,
            sampling=SamplingConfig(temperature=0.0, no_repeat_ngram_size=3, min_length=56),
            search=BeamSearchConfig(
                length_penalty=2.0, early_stopping=True, no_repeat_ngram_size=3,
                min_new_tokens=55,  # behind the start token
            ),
        )),
        ({"min_length": 56, "num_beams": 2, "min_new_tokens": 7}, None, searched(7)),
        ({"min_length": 56, "num_beams": 2, "min_new_tokens": 0}, None, searched(0)),
        # For a call that searches.
        ({"length_penalty": 2.0, "early_stopping": True, "num_beams": 1}, None, SpecialTokens(
            sampling=GREEDY,
            search=BeamSearchConfig(beam_size=1, length_penalty=2.0, early_stopping=True),
        )),
    ],
)  # fmt: skip
def test_settings_are_read(generation, config, expected, tmp_path):
    assert read(tmp_path, generation, config) == expected


@pytest.mark.parametrize(
    ("values", "sampling"),
    [
        ({}, SamplingConfig(top_k=50)),
        ({"temperature": 1, "top_k": 0, "top_p": 1.0}, SamplingConfig()),
        ({"top_k": 0, "top_p": 1.5}, SamplingConfig()),
        ({"top_p": 0.0}, SamplingConfig(top_k=50, top_p=0.0)),
        (MANY, SamplingConfig(**MANY)),
    ],
)
def test_sampling_has_the_defaults_of_transformers(values, sampling, tmp_path):
    assert read(tmp_path, DRAWN | values) == SpecialTokens(sampling=sampling, max_new_tokens=7)


def test_ids_are_those_of_the_first_file_that_has_them(tmp_path):
    tokenizer = with_special_tokens(byte_tokenizer(), ["<pad>", "<s>"])
    special = read(
        tmp_path,
        {"eos_token_id": [2, 5], "forced_bos_token_id": 9, "forced_eos_token_id": [3]},
        {"eos_token_id": 7, "bos_token_id": 1, "decoder_start_token_id": 4, "num_beams": 8},
        {"pad_token": {"content": "<pad>"}, "bos_token": "<s>", "eos_token": "<|endoftext|>"},
        tokenizer=tokenizer,
    )
    assert special == SpecialTokens(
        eos=(2, 5), bos=1, pad=257, decoder_start=4, forced_first=9, forced_last=3,
        sampling=GREEDY,
    )  # fmt: skip


def test_only_tokens_are_read_for_a_model_that_generates_nothing(tmp_path):
    values = {"pad_token_id": 5, "bos_token_id": [1, 2], "typical_p": 0.9, "do_sample": "?"}
    (tmp_path / "generation_config.json").write_text(json.dumps(values))
    special = read_special_tokens(tmp_path, {"max_length": 7}, generates=False)
    assert special == SpecialTokens(pad=5, sampling=GREEDY)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"typical_p": 0.9}, "typical_p=0.9; .* ignore=\\('typical_p',\\), or --ignore typ"),
        ({"typical_p": 0.9, "top_h": 1}, "top_h=1 and typical_p=0.9; .* --ignore top_h typical_p$"),
        ({"cache_implementation": "quantized"}, "cache_implementation='quantized'"),
        ({"bad_words_ids": [[1, 2]]}, "bad_words_ids=\\[\\[1, 2\\]\\]"),
        ({"do_sample": True, "num_beams": 2}, "alone or beside the others: do_sample=True"),
        ({"num_beams": 2, "repetition_penalty": 1.5}, "repetition_penalty=1.5"),
        ({"num_return_sequences": 2}, "num_return_sequences=2"),
        ({"decoder_start_token_id": [1, 2]}, "decoder_start_token_id=\\[1, 2\\]"),
        ({"do_sample": True, "top_p": -0.1}, "top_p must be in"),
        ({"do_sample": True, "top_k": -1}, "top_k must be positive, got top_k=-1"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(values, named, tmp_path):
    with pytest.raises(ConfigError, match=named):
        read(tmp_path, values)


def test_fields_that_do_not_matter_can_be_named(tmp_path):
    values = {"typical_p": 0.9, "frobnicate": 3, "eos_token_id": 1}
    special = read(tmp_path, values, ignore=("typical_p",))
    assert special == SpecialTokens(eos=(1,), sampling=GREEDY)


def test_what_is_not_supported_is_kept_beside_what_is(tmp_path):
    values = {
        "do_sample": True, "num_beams": 2, "typical_p": 0.9, "eos_token_id": 1,
        "repetition_penalty": 1.5, "bad_words_ids": [[4], [5, 6]], "bos_token_id": [7, 8],
    }  # fmt: skip
    (tmp_path / "generation_config.json").write_text(json.dumps(values))
    special = read_special_tokens(tmp_path, {})
    supported = {"num_beams", "eos_token_id"}
    assert special == SpecialTokens(
        eos=(1,), forbidden=(4,), sampling=GREEDY, search=BeamSearchConfig(beam_size=2),
        unsupported={name: value for name, value in values.items() if name not in supported},
    )  # fmt: skip
    assert generation_values(special).items() >= values.items()


def test_ends_that_are_suppressed_are_written_so_that_they_still_are(tmp_path):
    values = {"eos_token_id": 1, "suppress_tokens": [1, 4], "bad_words_ids": [[5]]}
    written = generation_values(read(tmp_path, values))
    assert (written["suppress_tokens"], written["bad_words_ids"]) == ([1], [[5], [4]])


def test_ids_below_0_are_kept_and_are_no_tokens(tmp_path):
    values = {"eos_token_id": [2, -1], "pad_token_id": -1, "bos_token_id": -1}
    special = read(tmp_path, values)
    assert (special.eos, special.pad, special.bos) == ((2, -1), -1, -1)
    assert generation_values(special).items() >= values.items()
    assert read_special_tokens(tmp_path, {}, tokenizer=byte_tokenizer()).eos == (2, -1)


def test_least_length_is_written_as_it_was_read(tmp_path):
    for values in ({"min_length": 50}, {"min_new_tokens": 50}):
        written = generation_values(read(tmp_path, {"num_beams": 4, **values}))
        assert {name: written[name] for name in written if name.startswith("min_")} == values
    settings = SpecialTokens(sampling=SamplingConfig(min_length=50, min_new_tokens=3))
    assert "min_length" not in generation_values(settings)


@pytest.mark.parametrize(
    "special",
    [
        SpecialTokens(sampling=GREEDY),
        SpecialTokens(eos=(2, 3), bos=1, pad=0, forbidden=(4,), sampling=SamplingConfig(top_k=9)),
        SpecialTokens(
            decoder_start=3, forced_first=5, forced_last=2, max_length=9, max_new_tokens=3,
            eos=(2,), search=BeamSearchConfig(beam_size=3, early_stopping=True),
            sampling=GREEDY,
        ),
        SpecialTokens(sampling=SamplingConfig(temperature=0.0, repetition_penalty=1.5)),
        SpecialTokens(sampling=SamplingConfig()),
        SpecialTokens(sampling=SamplingConfig(no_repeat_ngram_size=3, min_length=7)),
        SpecialTokens(
            sampling=SamplingConfig(temperature=0.0, no_repeat_ngram_size=2, min_new_tokens=5),
            search=BeamSearchConfig(no_repeat_ngram_size=2, min_new_tokens=5),
        ),
    ],
)  # fmt: skip
def test_what_is_written_is_read_again(special, tmp_path):
    assert read(tmp_path, generation_values(special)) == special


@pytest.mark.parity
def test_defaults_of_transformers_change_nothing(tmp_path):
    import transformers

    values = transformers.GenerationConfig._get_default_generation_params()
    special = read(tmp_path, values)
    assert special == SpecialTokens(sampling=GREEDY, max_length=20)
