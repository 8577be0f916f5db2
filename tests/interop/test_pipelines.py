"""Folders of Hugging Face from text to text, beside transformers.

For environments with torch and transformers: python -m pytest -m parity tests/interop.
"""

import re

import jax
import pytest

from jaxformer import runs
from jaxformer.inference import generate
from jaxformer.interop import load_huggingface
from tests.interop.tokenizer_folders import FOLDERS

pytestmark = pytest.mark.parity

SIZES = {
    "gpt2": {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 64},
    "llama": {
        "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    },
    "t5": {"d_model": 24, "d_kv": 6, "d_ff": 32, "num_layers": 2, "num_heads": 4},
    "bart": {
        "d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
        "max_position_embeddings": 64,
    },
}  # fmt: skip
TEXT = "good morning, how are you?"
CLASSES = {
    "gpt2": ("GPT2LMHeadModel", "gpt2"), "llama": ("LlamaForCausalLM", "llama"),
    "t5": ("T5ForConditionalGeneration", "t5"), "marian": ("MarianMTModel", "bart"),
    "bart": ("BartForConditionalGeneration", "bart"),
    "nllb": ("M2M100ForConditionalGeneration", "bart"),
    "m2m-100": ("M2M100ForConditionalGeneration", "bart"),
    "mbart-50": ("MBartForConditionalGeneration", "bart"),
    "mbart": ("MBartForConditionalGeneration", "bart"),
}  # fmt: skip


def make(name, folder):
    """A folder with its tokenizer and a random model of its vocabulary; both of transformers."""
    import torch
    import transformers

    FOLDERS[name](folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model_class, sizes = CLASSES[name]
    kind = getattr(transformers, model_class)
    special = {
        f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos", "pad")
    }
    if sizes in ("t5", "bart"):
        starts = "pad" if name in ("t5", "marian") else "eos"
        special["decoder_start_token_id"] = special[f"{starts}_token_id"]
    torch.manual_seed(0)
    size = 1 + max(tokenizer.get_vocab().values())
    config = kind.config_class(
        vocab_size=size + 108 * (name == "m2m-100"), **SIZES[sizes], **special
    )
    if sizes == "bart":
        config.forced_eos_token_id = None
    config.init_std = config.initializer_range = 0.5  # so that tokens stand out
    model = kind(config).eval()
    model.generation_config.max_length = 24
    if name == "marian":
        model.generation_config.bad_words_ids = [[special["pad_token_id"]]]
        model.generation_config.num_beams = 4
        model.generation_config.renormalize_logits = True  # as opus-mt's folders say
    model.save_pretrained(folder)
    return tokenizer, model


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_text_is_continued_as_in_transformers(name, tmp_path):
    tokenizer, model = make(name, tmp_path)
    inputs = tokenizer(TEXT, return_tensors="pt")
    (ids,) = model.generate(**inputs, max_new_tokens=12, do_sample=False).tolist()
    new = ids[inputs.input_ids.shape[1] :]
    run = runs.open_run(tmp_path)
    assert run.encode(TEXT).tolist() == ids[: -len(new)]
    found = run.generate(TEXT, max_new_tokens=12)
    before = tokenizer.decode(ids[: -len(new)], skip_special_tokens=True)
    both = tokenizer.decode(ids, skip_special_tokens=True)
    assert found == both.removeprefix(before)


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("name", ["t5", "marian", "nllb", "m2m-100", "mbart-50", "mbart"])
def test_text_is_translated_as_in_transformers(name, tmp_path):
    tokenizer, model = make(name, tmp_path)
    text, options, languages = TEXT, {"num_beams": 4}, {}
    if name == "marian":
        text = f">>kan<< {TEXT}"
    if name in ("nllb", "m2m-100", "mbart-50", "mbart"):
        languages = {
            "nllb": ("eng_Latn", "kan_Knda"), "m2m-100": ("en", "kn"),
            "mbart-50": ("en_XX", "ta_IN"), "mbart": ("en_XX", "ro_RO"),
        }[name]  # fmt: skip
        tokenizer.src_lang, target = languages
        token = f"__{target}__" if name == "m2m-100" else target
        forced = "decoder_start_token_id" if name == "mbart" else "forced_bos_token_id"
        options[forced] = tokenizer.convert_tokens_to_ids(token)
        languages = {"source_language": languages[0], "target_language": target}
    inputs = tokenizer(text, return_tensors="pt")
    result = model.generate(
        **inputs, **options, return_dict_in_generate=True, output_scores=True
    )  # fmt: skip
    (ids,) = result.sequences.tolist()
    expected = tokenizer.decode(ids, skip_special_tokens=True)
    run = runs.open_run(tmp_path, **languages)
    assert run.encode(text).tolist() == inputs.input_ids[0].tolist()
    (found,) = run.translate(text, beam_size=4)
    # Languages of M2M-100 are text in transformers.
    assert found.score == pytest.approx(float(result.sequences_scores[0]), rel=1e-4)
    assert found.text.strip() == re.sub("__[a-z]+__", "", expected).strip()
    runs.convert(tmp_path, tmp_path / "run", **languages)
    assert runs.open_run(tmp_path / "run").translate(text, beam_size=4) == [found]


@pytest.mark.parametrize(
    "rules",
    [
        {"no_repeat_ngram_size": 2},
        {"no_repeat_ngram_size": 1, "min_length": 30},
        {"min_new_tokens": 8, "min_length": 40},
    ],
    ids=str,
)
def test_ngrams_and_ends_of_continuations_are_ruled_out_as_in_transformers(rules, tmp_path):
    tokenizer, model = make("gpt2", tmp_path)
    inputs = tokenizer(TEXT, return_tensors="pt")
    prompt = inputs.input_ids[0].tolist()

    def continued():
        return model.generate(**inputs, max_new_tokens=20).tolist()[0][len(prompt) :]

    if len(rules) > 1:  # two tokens that would be generated end the text
        model.generation_config.eos_token_id = continued()[1:5:3]
    free = continued()
    model.generation_config.update(**rules)
    model.generation_config.save_pretrained(tmp_path)
    loaded = load_huggingface(tmp_path)
    special = loaded.special_tokens
    (found,) = generate(
        loaded.model, loaded.params, [prompt], max_new_tokens=20, rng=jax.random.key(0),
        sampling=special.sampling, stop_tokens=special.eos,
    )  # fmt: skip
    assert found.tolist() == continued() != free


@pytest.mark.parametrize("beams", [1, 4])
def test_summaries_are_those_of_transformers(beams, tmp_path):
    tokenizer, model = make("bart", tmp_path)
    model.final_logits_bias[0, tokenizer.eos_token_id] = 9.0  # so that it would end early
    model.generation_config.update(
        max_length=24, min_length=18, no_repeat_ngram_size=2,
        forced_bos_token_id=tokenizer.bos_token_id, forced_eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    if beams > 1:
        model.generation_config.update(num_beams=beams, length_penalty=2.0, early_stopping=True)
    model.save_pretrained(tmp_path)
    inputs = tokenizer(TEXT, return_tensors="pt")
    options = {"return_dict_in_generate": True, "output_scores": True}
    result = model.generate(**inputs, **options)
    (ids,) = result.sequences.tolist()
    run = runs.open_run(tmp_path)
    (found,) = run.translate(TEXT)
    assert found.text == tokenizer.decode(ids, skip_special_tokens=True)
    if beams > 1:
        assert found.score == pytest.approx(float(result.sequences_scores[0]), rel=1e-4)
    free = model.generate(**inputs, min_length=0, no_repeat_ngram_size=0).tolist()[0]
    late = model.generate(**inputs, no_repeat_ngram_size=0).tolist()[0]
    assert len(free) < 18 <= len(ids) and len({*map(tuple, (free, late, ids))}) == 3
