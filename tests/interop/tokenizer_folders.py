"""Folders of Hugging Face with tokenizers of every kind, and what transformers makes of texts.

The golden file is written once, with transformers: python -m tests.interop.tokenizer_folders
"""

import json
import pathlib
import shutil
import tempfile

import sentencepiece

from jaxformer.interop import load_tokenizers
from tests.text.foreign_tokenizers import TEXT, library_tokenizer

FOLDER = pathlib.Path("tests/interop/sentencepiece")  # small models, trained on phrases
GOLDEN = FOLDER / "tokenizer-folders.json"
PLAIN = [
    "", "hello", "good morning, how are you?", "two  spaces and behind ", "ನಮಸ್ಕಾರ, ಹೇಗಿದ್ದೀರಿ?",
    "Work, for the night is coming. 12", "smile 😀", "né É 東京", "the the the " * 40,
]  # fmt: skip


def _write(folder, model_type, files, **settings):
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    for name, content in files.items():
        if isinstance(content, pathlib.Path):
            shutil.copyfile(content, folder / name)
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / name).write_text(text, encoding="utf-8")


def _pieces(name):
    model = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / f"{name}.model"))
    return [model.id_to_piece(i) for i in range(3, model.get_piece_size())]


def marian(folder, **settings):
    source = _pieces("unigram-rules")
    # The vocabulary has another order, and pieces of other languages.
    names = ["</s>", "<unk>", *source[::-1], ">>kan<<", ">>eng<<", "東", "東京x", "<pad>"]
    ids = {name: i for i, name in enumerate(names)}
    spm = FOLDER / "unigram-rules.model"
    files = {"source.spm": spm, "target.spm": FOLDER / "bpe-rules.model", "vocab.json": ids}
    if not settings:
        files["target.spm"] = spm
    else:
        target_names = ["</s>", "<unk>", *_pieces("bpe-rules")[::-1], "<pad>"]
        files["target_vocab.json"] = {name: i for i, name in enumerate(target_names)}
    names = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    _write(folder, "marian", files, tokenizer_class="MarianTokenizer", **names, **settings)


def t5(folder):
    spm = FOLDER / "t5.model"
    _write(folder, "t5", {"spiece.model": spm}, tokenizer_class="T5Tokenizer", extra_ids=100)


def llama(folder):
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    files = {"tokenizer.model": FOLDER / "llama.model", "special_tokens_map.json": names}
    files["added_tokens.json"] = {"<|im_end|>": 500}
    settings = {"tokenizer_class": "LlamaTokenizer", "model_max_length": int(1e30)}
    settings |= {"add_bos_token": True, "add_eos_token": False, **names}
    _write(folder, "llama", files, **settings)


def gemma(folder):
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    settings = {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, **names}
    _write(folder, "gemma2", {"tokenizer.model": FOLDER / "gemma.model"}, **settings)


def mbart(folder):
    spm = {"sentencepiece.bpe.model": FOLDER / "unigram-rules.model"}
    settings = {"tokenizer_class": "MBartTokenizer", "src_lang": "hi_IN", "tgt_lang": "ro_RO"}
    _write(folder, "mbart", spm, **settings)


def mbart_50(folder):
    spm = {"sentencepiece.bpe.model": FOLDER / "unigram-rules.model"}
    _write(folder, "mbart", spm, tokenizer_class="MBart50Tokenizer", src_lang="hi_IN")


def nllb(folder):
    spm = {"sentencepiece.bpe.model": FOLDER / "bpe-rules.model"}
    from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES

    count = 1 + len(_pieces("bpe-rules")) + 3
    added = {
        str(count + i): {"content": name, "special": True}
        for i, name in enumerate([*FAIRSEQ_LANGUAGE_CODES, "<mask>"])
    }
    names = {"src_lang": "eng_Latn", "tgt_lang": "kan_Knda", "added_tokens_decoder": added}
    _write(folder, "m2m_100", spm, tokenizer_class="NllbTokenizer", **names)


def m2m_100(folder):
    names = ["<s>", "<pad>", "</s>", "<unk>", *_pieces("unigram-rules")[::-1]]
    files = {"sentencepiece.bpe.model": FOLDER / "unigram-rules.model"}
    files["vocab.json"] = {name: i for i, name in enumerate(names)}
    settings = {"tokenizer_class": "M2M100Tokenizer", "src_lang": "en", "tgt_lang": "kn"}
    _write(folder, "m2m_100", files, **settings)


def _byte_pairs(folder, model_type, special=(), **settings):
    model = json.loads(library_tokenizer("gpt2").to_str())["model"]
    vocab = {name: i for i, name in enumerate([*special, *model["vocab"]])}
    merges = "\n".join(["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]) + "\n"
    _write(folder, model_type, {"vocab.json": vocab, "merges.txt": merges}, **settings)


def gpt2(folder):
    _byte_pairs(folder, "gpt2", tokenizer_class="GPT2Tokenizer")


def roberta(folder):
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    _byte_pairs(folder, "roberta", special, tokenizer_class="RobertaTokenizer")


def bert(folder):
    letters = sorted({*TEXT, *TEXT.lower()} - set(" \n\t"))
    lines = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, "work", "night", "##ing"]
    lines += [f"##{letter}" for letter in letters if letter.isalpha()]
    vocab = {"vocab.txt": "\n".join(lines) + "\n"}
    _write(folder, "bert", vocab, tokenizer_class="BertTokenizer")


def chat(folder, name):
    """A folder with a chat template."""
    from tests.interop.chats import TEMPLATES

    template, special, names = TEMPLATES[name]
    if name == "llama-2":
        llama(folder)
    else:
        _byte_pairs(folder, "qwen2", tokenizer_class="GPT2Tokenizer")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config |= {"chat_template": template, **names}
    if special:
        added = {"0": "<|endoftext|>", **{str(320 + i): name for i, name in enumerate(special)}}
        config["added_tokens_decoder"] = {
            id: {"content": token, "special": True} for id, token in added.items()
        }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


FOLDERS = {
    "marian": marian, "marian-separate": lambda folder: marian(folder, separate_vocabs=True),
    "t5": t5, "llama": llama, "gemma": gemma, "mbart": mbart, "mbart-50": mbart_50, "nllb": nllb,
    "m2m-100": m2m_100, "gpt2": gpt2, "roberta": roberta, "bert": bert,
}  # fmt: skip


def load(folder):
    """The tokenizers of a folder."""
    return load_tokenizers(folder, json.loads((folder / "config.json").read_text())["model_type"])


def texts_of(name):
    """Texts that transformers reads as the model's own tokenizer does."""
    texts = [*PLAIN, *TEXT.splitlines()[1:3]]
    if name == "marian":
        texts += [">>kan<< hello you", ">>eng<<good morning"]
    # transformers keeps a space at the end, unlike SentencePiece
    if name in ("mbart-50", "nllb"):
        texts = [text.rstrip() for text in texts]
    return texts


def expected(name, folder):
    """Ids of transformers, of sources and of targets."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = texts_of(name)
    source = [tokenizer(text).input_ids for text in texts]
    target = [tokenizer(text_target=text).input_ids for text in texts]
    return {"source": source, "target": target, "size": len(tokenizer)}


def ids_with_special_tokens(tokenizer, text):
    """Ids of a text with the special tokens around it, by a tokenizer of jaxformer."""
    return tokenizer.surrounding_tokens.around(tokenizer.encode(text)).tolist()


def expected_chats(folder):
    """Ids of transformers of each conversation, with and without the beginning of an answer."""
    import transformers

    from tests.interop.chats import CHATS

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return [
        tokenizer.apply_chat_template(messages, add_generation_prompt=prompt).input_ids
        for messages in CHATS
        for prompt in (True, False)
    ]


if __name__ == "__main__":
    from tests.interop.chats import TEMPLATES

    golden = {}
    for name in TEMPLATES:
        with tempfile.TemporaryDirectory() as folder:
            chat(pathlib.Path(folder), name)
            golden[f"chat {name}"] = expected_chats(folder)
    for name, write in FOLDERS.items():
        with tempfile.TemporaryDirectory() as folder:
            write(pathlib.Path(folder))
            golden[name] = expected(name, folder)
    GOLDEN.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
