"""What folders say about generation: taken, neutral, without effect, or refused by name."""

import json

import pytest

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.interop.generation_settings import (
    GENERATION_FIELDS,
    SpecialTokens,
    generation_values,
    special_token_ids,
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
    return special_token_ids(folder, config or {}, **options)


def test_nothing_said_is_greedy(tmp_path):
    assert read(tmp_path) == SpecialTokens(sampling=GREEDY)


def test_ids_are_those_of_the_first_file_that_has_them(tmp_path):
    tokenizer = with_special_tokens(byte_tokenizer(), ["<pad>", "<s>"])
    found = read(
        tmp_path,
        {"eos_token_id": [2, 5], "forced_bos_token_id": 9, "forced_eos_token_id": [3]},
        {"eos_token_id": 7, "bos_token_id": 1, "decoder_start_token_id": 4, "num_beams": 8},
        {"pad_token": {"content": "<pad>"}, "bos_token": "<s>", "eos_token": "<|endoftext|>"},
        tokenizer=tokenizer,
    )
    assert found == SpecialTokens(
        eos=(2, 5), bos=1, pad=257, decoder_start=4, forced_first=9, forced_last=3,
        sampling=GREEDY,
    )  # fmt: skip


def test_marian_has_a_beam_search_and_a_token_that_is_never_generated(tmp_path):
    marian = {
        "bad_words_ids": [[58100], [0]], "suppress_tokens": [8, 58100], "eos_token_id": 0,
        "max_length": 512, "num_beams": 6, "length_penalty": 0.5, "early_stopping": "never",
        "num_return_sequences": 2, "min_length": 0, "use_cache": False,
    }  # fmt: skip
    found = read(tmp_path, None, marian)
    search = BeamSearchConfig(beam_size=6, length_penalty=0.5, early_stopping="never", num_best=2)
    assert found == SpecialTokens(
        eos=(0,), forbidden=(58100, 8), max_length=512, sampling=GREEDY, search=search
    )


@pytest.mark.parametrize(
    ("values", "sampling"),
    [
        ({}, SamplingConfig(top_k=50)),
        ({"temperature": 1, "top_k": 0, "top_p": 1.0}, SamplingConfig()),
        (
            {"temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": 0.05,
             "repetition_penalty": 1.05},
            SamplingConfig(
                temperature=0.6, top_k=20, top_p=0.9, min_p=0.05, repetition_penalty=1.05
            ),
        ),
    ],
)  # fmt: skip
def test_sampling_has_the_defaults_of_transformers(values, sampling, tmp_path):
    found = read(tmp_path, {"do_sample": True, "max_new_tokens": 7, **values})
    assert found == SpecialTokens(sampling=sampling, max_new_tokens=7)


def test_greedy_ignores_what_is_of_sampling_only(tmp_path):
    assert read(tmp_path, {"temperature": 0.6, "top_p": 0.9}).sampling == GREEDY


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"no_repeat_ngram_size": 3}, "no_repeat_ngram_size=3"),
        ({"min_length": 56}, "min_length=56"),
        ({"typical_p": 0.9}, "typical_p=0.9"),
        ({"guidance_scale": 1.5}, "guidance_scale=1.5"),
        ({"stop_strings": ["x"]}, "stop_strings"),
        ({"begin_suppress_tokens": [1]}, "begin_suppress_tokens"),
        ({"cache_implementation": "quantized"}, "cache_implementation='quantized'"),
        ({"bad_words_ids": [[1, 2]]}, "a word of several tokens, \\[1, 2\\]"),
        ({"bad_words_ids": [1]}, "bad_words_ids .* must be a list of lists"),
        ({"do_sample": True, "num_beams": 2}, "num_beams=2 .* with do_sample=true"),
        ({"num_beams": 2, "repetition_penalty": 1.5}, "repetition_penalty=1.5"),
        ({"num_return_sequences": 2}, "num_return_sequences=2"),
        ({"decoder_start_token_id": [1, 2]}, "decoder_start_token_id=\\[1, 2\\]"),
        ({"eos_token_id": "x"}, "eos_token_id .* must be an id or a list of ids, got 'x'"),
        ({"do_sample": 1}, "do_sample .* must be true or false"),
        ({"do_sample": True, "temperature": "hot"}, "temperature .* must be a number"),
        ({"do_sample": True, "top_p": 3}, "top_p must be in"),
        ({"do_sample": True, "top_k": -1}, "top_k .* at least 0"),
        ({"max_length": 0}, "max_length .* must be a positive integer, got 0"),
        ({"frobnicate": 3}, "frobnicate=3 of generation_config.json is not known"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(values, named, tmp_path):
    with pytest.raises(ConfigError, match=named):
        read(tmp_path, values)


def test_fields_that_do_not_matter_can_be_named(tmp_path):
    values = {"no_repeat_ngram_size": 3, "frobnicate": 3, "eos_token_id": 1}
    found = read(tmp_path, values, ignore=("no_repeat_ngram_size", "frobnicate"))
    assert found == SpecialTokens(eos=(1,), sampling=GREEDY)


def test_damaged_file_is_refused(tmp_path):
    (tmp_path / "generation_config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="generation_config.json is damaged"):
        special_token_ids(tmp_path, {})


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
    ],
)  # fmt: skip
def test_what_is_written_is_read_again(special, tmp_path):
    assert read(tmp_path, generation_values(special)) == special


@pytest.mark.parity
def test_every_field_of_transformers_is_decided_on():
    import transformers

    assert vars(transformers.GenerationConfig()).keys() <= GENERATION_FIELDS


@pytest.mark.parity
def test_defaults_of_transformers_change_nothing(tmp_path):
    import transformers

    values = transformers.GenerationConfig._get_default_generation_params()
    found = read(tmp_path, values)
    assert found == SpecialTokens(sampling=GREEDY, max_length=20)
