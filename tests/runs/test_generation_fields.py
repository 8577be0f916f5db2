"""Each field of generation_config.json does what transformers does, or generating refuses it."""

import json
import warnings

import pytest

from jaxformer import runs
from jaxformer.errors import ConfigError
from jaxformer.interop.generation_config import read_special_tokens, require_supported
from tests.runs import pretrained_folders

TEXT = "the cat sat on the mat"
LLAMA = {"bos_token_id": 0, "eos_token_id": [1, 2], "max_new_tokens": 9}
T5 = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "max_length": 10}
BLUE = 15  # id of a word of the llama

# Values that change what a model may generate, by kind of model.
GREEDY = [
    {"max_length": 12, "max_new_tokens": None}, {"max_length": 9, "max_new_tokens": 4},
    {"eos_token_id": [1, BLUE], "min_length": 10}, {"eos_token_id": BLUE, "min_new_tokens": 3},
    {"eos_token_id": -1, "pad_token_id": -1}, {"eos_token_id": [-1, BLUE, 99], "bos_token_id": -1},
    {"repetition_penalty": 1.5}, {"no_repeat_ngram_size": 1},
    {"bad_words_ids": [[BLUE], [1]]}, {"suppress_tokens": [BLUE, 99]},
    {"do_sample": True, "top_p": 0.0}, {"do_sample": True, "top_k": 1, "top_p": 1.5},
]  # fmt: skip
TRANSLATION = [
    {"max_length": 6}, {"max_length": 9, "max_new_tokens": 3},
    {"eos_token_id": [1, 8], "length_penalty": 0.0}, {"eos_token_id": 8}, {"eos_token_id": -1},
    {"eos_token_id": [1, 8, 9], "early_stopping": True, "min_length": 4},
    {"length_penalty": 3.0, "early_stopping": "never", "num_return_sequences": 2},
    {"no_repeat_ngram_size": 1, "renormalize_logits": True, "min_new_tokens": 5},
    {"bad_words_ids": [[8]], "suppress_tokens": [9, 1]},
    {"forced_bos_token_id": 7, "forced_eos_token_id": 9},
    {"decoder_start_token_id": None, "bos_token_id": 7},
]  # fmt: skip
# Fields that change nothing, with values that are not their defaults.
WITHOUT_EFFECT = {
    "use_cache": False, "cache_config": {"max_cache_len": 40}, "max_cache_len": 40,
    "output_attentions": True, "output_hidden_states": True, "output_scores": True,
    "output_logits": True, "return_dict_in_generate": True, "remove_invalid_values": True,
    "num_assistant_tokens": 3, "num_assistant_tokens_schedule": "heuristic",
    "assistant_confidence_threshold": 0.1, "max_matching_ngram_size": 3, "assistant_lookbehind": 3,
    "target_lookbehind": 3, "disable_compile": True,
    "temperature": 0.5, "top_k": 3, "top_p": 0.5, "min_p": 0.3,  # without do_sample
}  # fmt: skip
# Fields that are not compared: they are of a draft model, of memory or of compiling alone.
NOT_COMPARED = {
    "prompt_lookup_num_tokens": 2, "assistant_early_exit": 1, "speculation_type": "dflash",
    "compile_config": {}, "continuous_batching_config": {}, "prefill_chunk_size": 2,
    "cache_implementation": "static", "low_memory": True,
}  # fmt: skip
REFUSED = {
    "max_time": 100.0, "stop_strings": ["dog"], "use_mtp": True, "top_h": 0.5, "typical_p": 0.5,
    "epsilon_cutoff": 0.1, "eta_cutoff": 0.1, "encoder_repetition_penalty": 1.5,
    "exponential_decay_length_penalty": [2, 1.5], "begin_suppress_tokens": [7],
    "sequence_bias": [[[7], 5.0]], "token_healing": True, "guidance_scale": 1.5,
    "watermarking_config": {}, "encoder_no_repeat_ngram_size": 1, "is_assistant": True,
    "assistant_ensemble_weight": 0.5, "penalty_alpha": 0.6, "dola_layers": "low",
    "diversity_penalty": 0.5, "num_beam_groups": 2, "constraints": [], "force_words_ids": [[7]],
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("folders")
    pretrained_folders.llama(root / "llama")
    pretrained_folders.t5(root / "t5")
    return root


def open_with(folder, base, settings):
    """Opens a folder with a generation_config.json of `base` and `settings`; null takes out."""
    values = {name: value for name, value in (base | settings).items() if value is not None}
    (folder / "generation_config.json").write_text(json.dumps(values))
    return runs.open_run(folder)


def generated_there(run, start):
    """The tokens that transformers generates from the run's folder, behind `start` inputs."""
    import torch
    import transformers

    kinds = transformers.LlamaForCausalLM, transformers.T5ForConditionalGeneration
    model = kinds[isinstance(run, runs.Translator)].from_pretrained(run.folder)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output = model.generate(torch.tensor([run.encode(TEXT).tolist()]))
    rows = output if isinstance(output, torch.Tensor) else output.sequences
    return [run.decode(row[start:].numpy()) for row in rows]


@pytest.mark.parity
@pytest.mark.parametrize("settings", [*GREEDY, WITHOUT_EFFECT], ids=str)
def test_decoder_generates_what_transformers_does(folders, settings):
    run = open_with(folders / "llama", LLAMA, settings)
    (there,) = generated_there(run, 7)
    assert run.generate(TEXT).strip() == there


@pytest.mark.parity
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("settings", [*TRANSLATION, WITHOUT_EFFECT], ids=str)
def test_encoder_decoder_translates_as_transformers_does(folders, settings, beams):
    if beams == 1:
        settings = {n: value for n, value in settings.items() if n != "num_return_sequences"}
    run = open_with(folders / "t5", T5, {"num_beams": beams, **settings})
    assert [best.text for best in run.translate([TEXT])[0]] == generated_there(run, 1)


@pytest.mark.parametrize("field", REFUSED)
def test_field_without_an_option_is_refused_by_name(field, tmp_path):
    (tmp_path / "generation_config.json").write_text(json.dumps({field: REFUSED[field]}))
    with pytest.raises(ConfigError, match=f"unsupported generation settings, .*: {field}="):
        require_supported(read_special_tokens(tmp_path, {}).unsupported)


@pytest.mark.parity
def test_every_field_of_transformers_is_in_one_of_the_groups():
    import transformers

    compared = {name for values in (*GREEDY, *TRANSLATION) for name in values}
    groups = {*compared, *WITHOUT_EFFECT, *NOT_COMPARED, *REFUSED, "num_beams"}
    fields = vars(transformers.GenerationConfig()).keys()
    assert {name for name in fields if not name.startswith("_")} - groups == {
        "transformers_version"
    }
