"""Small tokenizers of the kinds that GPT-2, Llama 2 and 3, T5 and BERT have in their files."""

import functools
import json

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

__all__ = ["END", "FOREIGN", "TEXT", "foreign_json", "library_tokenizer"]

TEXT = (
    "Work, for the night (it is dark) is coming: we'll work 37 hours.\n\n\tIs it?\nÜber — 東京.\n"
    "The night is dark; the work is long.\nNo one comes.\n"
)
LETTERS = pre_tokenizers.ByteLevel.alphabet()
_LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _trained(tokenizer, trainer, lines=False, **options):
    texts = [line for line in TEXT.splitlines() if line] if lines else [TEXT]
    tokenizer.train_from_iterator(texts * 3, trainer(show_progress=False, **options))
    return tokenizer


def gpt2():
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding()
    options = {"vocab_size": 320, "special_tokens": ["<|endoftext|>"], "initial_alphabet": LETTERS}
    return _trained(tokenizer, trainers.BpeTrainer, **options)


def llama_3():
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_LLAMA_3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|begin_of_text|>", "<|end_of_text|>"]
    options = {"vocab_size": 320, "special_tokens": special, "initial_alphabet": LETTERS}
    return _trained(tokenizer, trainers.BpeTrainer, **options)


def llama_2():
    tokenizer = tokenizers.Tokenizer(
        models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    options = {"vocab_size": 360, "special_tokens": ["<unk>", "<s>", "</s>", *bytes_]}
    _trained(tokenizer, trainers.BpeTrainer, lines=True, **options)
    values = json.loads(tokenizer.to_str())  # in which bytes are ordinary tokens
    values["added_tokens"] = values["added_tokens"][:3]
    return tokenizers.Tokenizer.from_str(json.dumps(values))


def t5():
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    options = {"vocab_size": 80, "special_tokens": special, "unk_token": "<unk>"}
    return _trained(tokenizer, trainers.UnigramTrainer, **options)


def bert():
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    _trained(tokenizer, trainers.WordPieceTrainer, vocab_size=80, special_tokens=special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


FOREIGN = {"gpt2": gpt2, "llama 3": llama_3, "llama 2": llama_2, "t5": t5, "bert": bert}
END = {"llama 3": "<|end_of_text|>", "llama 2": "</s>", "t5": "</s>", "bert": "[SEP]"}


@functools.cache  # since a unigram model is another each time that it is trained
def foreign_json(name):
    """The file of a tokenizer."""
    return FOREIGN[name]().to_str()


def library_tokenizer(name):
    """The library's own, which does not cut texts off, fill them up or read special tokens."""
    tokenizer = tokenizers.Tokenizer.from_str(foreign_json(name))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer
