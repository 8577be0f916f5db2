"""Tokenizers that are loaded, saved as tokenizer.json, and read again, here and in transformers."""

import json

import jax
import pytest
import tokenizers
from tokenizers import processors

from jaxformer.config import BeamSearchConfig, ModelConfig, SamplingConfig
from jaxformer.errors import ConfigError
from jaxformer.interop import (
    HuggingFaceModel,
    SpecialTokens,
    load_chat_template,
    load_huggingface,
    load_tokenizers,
    save_huggingface,
)
from jaxformer.interop.saved_tokenizers import write_tokenizer
from jaxformer.models import Decoder
from jaxformer.text import Tokenizer, byte_tokenizer, with_special_tokens
from tests.interop.tokenizer_folders import FOLDERS, chat, ids_with_special_tokens, load, texts_of

# Of the kinds that generate; what is around a text is in their post-processors.
KINDS = ["t5", "llama", "gemma", "nllb", "marian", "gpt2", "bert"]


def special_of(tokenizer):
    """The end of text, as `save_huggingface` passes it."""
    end = tokenizer.end_of_text
    return SpecialTokens(eos=() if end is None else (end,))


def save(kind, folder, saved, **options):
    """The tokenizer of a folder of a kind, saved in another folder."""
    FOLDERS[kind](folder)
    tokenizer = load(folder).source
    write_tokenizer(saved, tokenizer, special_of(tokenizer), **options)
    (saved / "config.json").write_text('{"model_type": "llama"}')
    return tokenizer


@pytest.fixture(scope="module", params=KINDS)
def case(request, tmp_path_factory):
    saved = tmp_path_factory.mktemp("ours")
    tokenizer = save(request.param, tmp_path_factory.mktemp("theirs"), saved)
    texts = [text for text in texts_of(request.param) if "x東" not in text]
    return saved, tokenizer, texts


def test_saved_tokenizer_encodes_the_same_here(case):
    saved, tokenizer, texts = case
    again = load_tokenizers(saved, "llama")
    assert again.source.end_of_text == tokenizer.end_of_text
    for text in texts:
        ids = ids_with_special_tokens(again.source, text)
        assert ids == ids_with_special_tokens(tokenizer, text)


@pytest.mark.parity
def test_saved_tokenizer_encodes_the_same_in_transformers(case):
    import transformers

    saved, tokenizer, texts = case
    theirs = transformers.AutoTokenizer.from_pretrained(saved)
    assert theirs.eos_token_id == tokenizer.end_of_text
    for text in texts:
        assert theirs(text).input_ids == ids_with_special_tokens(tokenizer, text)


@pytest.mark.parametrize(
    ("kind", "begin", "end", "between"),
    [("bert", "[CLS]", "[SEP]", ["[SEP]"]), ("roberta", "<s>", "</s>", ["</s>", "</s>"])],
)
def test_pairs_of_a_saved_tokenizer_have_its_tokens_and_types(tmp_path, kind, begin, end, between):
    pair, is_typed = ("hello", "good morning"), kind == "bert"
    tokenizer = save(kind, tmp_path, tmp_path, has_token_types=is_typed)
    encoding = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode(*pair)
    first, second = (tokenizer.encode(text).tolist() for text in pair)
    begin, end, *between = map(tokenizer.special_id, (begin, end, *between))
    assert encoding.ids == [begin, *first, *between, *second, end]
    size = 1 + len(second) if is_typed else 0
    assert encoding.type_ids == [0] * (len(encoding.ids) - size) + [1] * size
    names = json.loads((tmp_path / "tokenizer_config.json").read_text())["model_input_names"]
    assert ("token_type_ids" in names) == is_typed


def test_saved_tokenizer_adds_no_tokens_that_the_model_was_not_trained_with(tmp_path):
    library = tokenizers.Tokenizer.from_str(byte_tokenizer().to_json())
    library.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 256)]
    )
    write_tokenizer(tmp_path, Tokenizer(library), SpecialTokens())
    saved = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert saved.encode("a").ids == [97]


@pytest.fixture(scope="module")
def chat_folder(tmp_path_factory):
    """A model that was loaded with its chat template, and the folder that it was saved to."""
    theirs, saved = tmp_path_factory.mktemp("theirs"), tmp_path_factory.mktemp("ours")
    chat(theirs, "chatml")
    tokenizer = load_tokenizers(theirs, "llama").target
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size, max_len=8, num_layers=1, d_model=4, num_heads=1,
        norm="rms_norm", use_bias=False, activation="swiglu",
    )  # fmt: skip
    params = Decoder(config).init_params(jax.random.key(0))
    end = tokenizer.special_id("<|im_end|>")
    special = SpecialTokens(
        eos=(end, tokenizer.end_of_text), pad=tokenizer.end_of_text, max_length=8,
        sampling=SamplingConfig(top_p=0.5),
    )  # fmt: skip
    template = load_chat_template(theirs)
    model = HuggingFaceModel(
        config, params, tokenizer, unchecked_special_tokens=special, chat_template=template
    )
    save_huggingface(saved, model)
    return saved, tokenizer, special, template


MESSAGES = [{"role": "user", "content": "hello"}]


def test_model_is_loaded_with_all_that_belongs_to_it(chat_folder):
    saved, tokenizer, special, template = chat_folder
    loaded = load_huggingface(saved)
    assert loaded.source_tokenizer is loaded.tokenizer
    assert loaded.special_tokens == special
    ids = loaded.chat_template.encode(loaded.tokenizer, MESSAGES)
    assert ids.tolist() == template.encode(tokenizer, MESSAGES).tolist()


def test_loaded_model_is_saved_with_all_that_belongs_to_it(chat_folder, tmp_path):
    saved = chat_folder[0]
    save_huggingface(tmp_path, load_huggingface(saved))
    for file in saved.iterdir():
        assert (tmp_path / file.name).read_bytes() == file.read_bytes(), file.name


def test_of_two_tokenizers_that_of_the_source_is_saved(chat_folder, tmp_path):
    loaded = load_huggingface(chat_folder[0])
    source, target = loaded.tokenizer, with_special_tokens(byte_tokenizer(), ["<|other|>"])
    assert source.end_of_text != target.end_of_text
    with_two = HuggingFaceModel(loaded.config, loaded.params, target, source)
    with pytest.warns(UserWarning, match="room for one tokenizer: that of the source is written"):
        save_huggingface(tmp_path, with_two)
    assert load_huggingface(tmp_path).tokenizer.vocab_size == source.vocab_size
    # The model generates ids of the target's, by which its end is known.
    assert json.loads((tmp_path / "config.json").read_text())["eos_token_id"] == target.end_of_text
    names = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert names["eos_token"] == target.token_name(target.end_of_text)


def test_end_of_text_of_the_tokenizer_ends_texts_unless_other_tokens_are_given(
    chat_folder, tmp_path
):
    saved, tokenizer, special, _ = chat_folder
    loaded = load_huggingface(saved)
    save_huggingface(tmp_path, HuggingFaceModel(loaded.config, loaded.params, tokenizer))
    ends = [
        json.loads((folder / "config.json").read_text())["eos_token_id"]
        for folder in (tmp_path, saved)
    ]
    assert ends == [tokenizer.end_of_text, list(special.eos)]


@pytest.mark.parity
def test_transformers_reads_what_belongs_to_the_model(chat_folder):
    import transformers

    saved, tokenizer, special, template = chat_folder
    theirs = transformers.AutoTokenizer.from_pretrained(saved)
    assert theirs.apply_chat_template(MESSAGES, add_generation_prompt=True).input_ids == (
        template.encode(tokenizer, MESSAGES).tolist()
    )
    generation = transformers.GenerationConfig.from_pretrained(saved)
    assert generation.eos_token_id == list(special.eos)
    assert (generation.do_sample, generation.top_p, generation.top_k) == (True, 0.5, 0)


def test_settings_of_generation_that_are_not_supported_stop_generation_alone(chat_folder, tmp_path):
    for file in chat_folder[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "generation_config.json").write_text('{"typical_p": 0.9, "num_beams": 2}')
    loaded = load_huggingface(tmp_path)
    with pytest.raises(ConfigError, match="typical_p=0.9; .* pass ignore=\\('typical_p',\\)"):
        _ = loaded.special_tokens
    assert loaded.unchecked_special_tokens.unsupported == {"typical_p": 0.9}
    special = load_huggingface(tmp_path, ignore=("typical_p",)).special_tokens
    assert special.search == BeamSearchConfig(beam_size=2)
