"""Tiny folders of Hugging Face with tokenizers: random models, saved as transformers saves them."""

import dataclasses
import json
import shutil

import jax
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from jaxformer.config import ExperimentConfig, ModelConfig, RelativeConfig, config_from_dict
from jaxformer.interop import HuggingFaceModel, save_huggingface
from jaxformer.models import (
    Decoder,
    EncoderDecoder,
    MaskedLanguageModel,
    PooledEncoder,
    SequenceClassifier,
)
from jaxformer.runs.weights.preparing import complete_tables

TEXT = "the cat sat on the mat"
WORDS = "the a cat dog sat ran on to mat log house red blue green good bad well is was".split()


def tokenizer(special, template=None):
    """A tokenizer of words, with special tokens around a text, as its template says."""
    vocab = {name: i for i, name in enumerate([*special, "[UNK]", *WORDS])}
    word_tokenizer = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    word_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    word_tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    word_tokenizer.add_special_tokens([*special, "[UNK]"])
    if template is not None:
        pairs = [(name, vocab[name]) for name in special]
        word_tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=pairs
        )
    return word_tokenizer


def write(folder, model, config, *, special, template=None, fields=(), seed=0):
    """Writes a folder of a model; returns its parameters."""
    word_tokenizer = tokenizer(special, template)
    config = ModelConfig(vocab_size=word_tokenizer.get_vocab_size(), **config)
    params = model(config).init_params(jax.random.key(seed))
    # Larger than they are drawn, so that a token stands out.
    params = jax.tree.map(lambda leaf: 4 * leaf, params)
    save_huggingface(folder, HuggingFaceModel(config, params))
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | dict(fields)))
    word_tokenizer.save(str(folder / "tokenizer.json"))
    return config, params


SIZES = {"num_layers": 2, "d_model": 12, "num_heads": 3, "d_ff": 20}


def gpt2(folder):
    """Learned positions, and a tokenizer that puts nothing around a text."""
    config = {**SIZES, "max_len": 24, "positions": "learned", "activation": "gelu_tanh"}
    fields = {"eos_token_id": 0, "bos_token_id": 0}
    return write(folder, Decoder, config, special=["<|endoftext|>"], fields=fields)


def llama(folder):
    """A token before every text, and two that end one."""
    config = {
        **SIZES, "max_len": 40, "positions": "rotary", "norm": "rms_norm", "activation": "swiglu",
        "use_bias": False,
    }  # fmt: skip
    special = ["<s>", "</s>", "<|eot|>"]
    fields = {"bos_token_id": 0, "eos_token_id": [1, 2]}
    return write(folder, Decoder, config, special=special, template="<s> $A", fields=fields)


def bert_base(folder):
    """An encoder without a head."""
    return bert(folder, headless=True)


def bert(folder, num_classes=None, headless=False):
    """[CLS] and [SEP] around a text; of masked words, or of classes, or neither."""
    config = {
        **SIZES, "architecture": "encoder", "max_len": 24, "positions": "learned",
        "norm_position": "post", "embedding_norm": True, "num_token_types": 2,
        "activation": "gelu", "norm_eps": 1e-12,
    }  # fmt: skip
    config |= (
        {"output_bias": True, "head_bias": True}
        if num_classes is None
        else {"num_classes": num_classes, "pooling": "first", "pooler": "tanh", "head_bias": True}
    )
    if headless:
        config = {key: value for key, value in config.items() if key != "output_bias"}
        config |= {"pooling": "first", "pooler": "tanh"}
    names = ("bad", "good", "so-so")[: num_classes or 0]
    fields = {"id2label": {str(i): name for i, name in enumerate(names)}} if names else {}
    model = MaskedLanguageModel if num_classes is None else SequenceClassifier
    model = PooledEncoder if headless else model
    special = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
    return write(folder, model, config, special=special, template="[CLS] $A [SEP]", fields=fields)


def t5(folder):
    """Starts with the padding, and ends sources and targets."""
    config = {
        **SIZES, "architecture": "encoder_decoder", "max_len": 32, "d_ff": 24,
        "positions": RelativeConfig(), "norm": "rms_norm", "activation": "relu", "use_bias": False,
        "attention_scale": 1.0, "logit_scale": 12**-0.5, "tied_embeddings": True,
    }  # fmt: skip
    fields = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "max_length": 17}
    special = ["<pad>", "</s>"]
    return write(folder, EncoderDecoder, config, special=special, template="$A </s>", fields=fields)


def with_settings(folder, target, **settings):
    """A copy of a folder with other values in its config."""
    shutil.copytree(folder, target)
    values = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(values | settings))
    return target


def with_chat_template(folder):
    """Adds a chat template to a folder; returns it."""
    template = "<s>{% for m in messages %}{{ m.content }}</s>{% endfor %}<|eot|>"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return template


def ids_of(folder, text):
    """Tokens of a text, by the library alone."""
    return tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json").encode(text).ids


def starting(out, folder, values):
    """A config that says of the model only what is its own, completed as the command line does."""
    values = complete_tables(values, str(folder), str(out))
    config = config_from_dict(ExperimentConfig, values)
    return dataclasses.replace(config, out=str(out), init_from=str(folder))
