"""Folders of Hugging Face from text to text, beside transformers.

For environments with torch and transformers: python -m pytest -m parity tests/interop.
"""

import re

import numpy as np
import pytest

from jaxformer import runs
from jaxformer.cli import main
from jaxformer.interop import HuggingFaceModel
from tests.interop import ours
from tests.interop.tables import VARIANTS
from tests.interop.tokenizer_folders import FOLDERS

pytestmark = pytest.mark.parity

SIZES = {
    "gpt2": {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 64},
    "llama": {
        "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    },
    "bert": {
        "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 3, "max_position_embeddings": 64,
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
    "gpt2": ("GPT2LMHeadModel", "gpt2"), "bert": ("BertForMaskedLM", "bert"),
    "llama": ("LlamaForCausalLM", "llama"),
    "t5": ("T5ForConditionalGeneration", "t5"), "marian": ("MarianMTModel", "bart"),
    "bart": ("BartForConditionalGeneration", "bart"),
    "nllb": ("M2M100ForConditionalGeneration", "bart"),
    "m2m-100": ("M2M100ForConditionalGeneration", "bart"),
    "mbart-50": ("MBartForConditionalGeneration", "bart"),
    "mbart": ("MBartForConditionalGeneration", "bart"),
}  # fmt: skip


def make(name, folder, std=0.5):
    """A folder with its tokenizer and a random model of its vocabulary; both of transformers.

    Its weights have a standard deviation at which tokens stand out.
    """
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
    config.init_std = config.initializer_range = std
    model = kind(config).eval()
    if model.can_generate():
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
    continued = run.generate(TEXT, max_new_tokens=12)
    before = tokenizer.decode(ids[: -len(new)], skip_special_tokens=True)
    whole = tokenizer.decode(ids, skip_special_tokens=True)
    assert continued == whole.removeprefix(before)


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
    ((translation,),) = run.translate([text], beam_size=4)
    # Languages of M2M-100 are text in transformers.
    assert translation.score == pytest.approx(float(result.sequences_scores[0]), rel=1e-4)
    assert translation.text.strip() == re.sub("__[a-z]+__", "", expected).strip()
    runs.convert(tmp_path, tmp_path / "run", **languages)
    assert runs.open_run(tmp_path / "run").translate([text], beam_size=4) == [[translation]]


# What each is trained on, and what is made of it.
FINE_TUNED = {
    "gpt2": ("files", "{text}", "batch_size = 2", "gpt2"),
    "bert": ("labelled", "{text}\t{label}", "batch_tokens = 96", "bert-classes"),
    "marian": ("pairs", "{text}\t{text}", "batch_tokens = 96", "marian"),
    "t5": ("pairs", "{text}\t{text}", "batch_tokens = 96", "t5"),
}
# What the classifiers of BERT have between the encoder and their scores.
HEADS = {"classifier": 'pooling = "first"\npooler = "tanh"\nhead_bias = true'}


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("name", FINE_TUNED)
def test_folder_that_was_fine_tuned_with_lora_computes_the_same_there(name, tmp_path):
    from tests.interop import torch_models

    (tmp_path / "base").mkdir()
    make(name, tmp_path / "base", std=0.1)
    source, line, batch, tuned = FINE_TUNED[name]
    kind, class_name = VARIANTS[tuned].kind, VARIANTS[tuned].class_name
    words = ("work", "night", "12", "is")
    texts = [f"{TEXT} {word} {other}" for word in words for other in words]
    lines = [line.format(text=text, label=("good", "bad")[i % 2]) for i, text in enumerate(texts)]
    data, out = tmp_path / f"data.{'txt' if source == 'files' else 'tsv'}", tmp_path / "run"
    data.write_text("\n".join(lines) + "\n")
    config = tmp_path / "tune.toml"
    config.write_text(
        f"""
        init_from = "{tmp_path / "base"}"
        [data]
        source = "{source}"
        paths = ["{data}"]
        validation_fraction = 0.3
        [model]
        max_len = 48
        {HEADS.get(kind, "")}
        [optimizer]
        learning_rate = 1e-2
        [training]
        steps = 3
        {batch}
        runner = "single"
        [lora]
        rank = 2
        targets = ["*attention*", "*up_kernel"]
        """
    )
    main(["train", str(config), "--out", str(out)])
    main(["convert", str(out), str(tmp_path / "merged")])
    run = runs.open_run(out)
    ids = np.array(run.encode(TEXT), np.int32)[None]
    inputs = {"tokens": ids, "lengths": np.array([ids.size])}
    if kind == "encoder_decoder":
        inputs["targets"] = np.array([[run.decoding.decoder_start, 5, 7, 11, 3]])
    outputs = ours.run(HuggingFaceModel(run.config.model, run.params, None), kind, inputs)
    model = torch_models.read_model(tmp_path / "merged", class_name)
    expected = torch_models.run(model, kind, inputs)
    for key in outputs.keys() & expected.keys():
        np.testing.assert_allclose(outputs[key], expected[key], rtol=1e-5, atol=1e-5, err_msg=key)
    assert outputs["logits"].shape == expected["logits"].shape
    if kind != "classifier":  # of which the base has no scores
        before = torch_models.run(
            torch_models.read_model(tmp_path / "base", class_name), kind, inputs
        )
        assert np.abs(before["logits"] - outputs["logits"]).max() > 1e-2
