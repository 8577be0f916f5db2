"""Golden files of SentencePiece: small models, and what its package makes of texts.

Written once, with the package: python -m tests.interop.sentencepiece_golden
"""

import contextlib
import json
import pathlib
import tempfile

from jaxformer.text import load_phrasebook

FOLDER = pathlib.Path("tests/interop/sentencepiece")
# Rules of which one begins another, that end amid a grapheme, and that remove a character.
RULES = (
    ("A", "a"), ("e\u0301", "é"), ("e\u0301\u0323", "ẹ́"), ("ﬁ", "fi"), ("Ａ", "a"), ("\u0001", ""),
    ("\t", " "), ("\n", " "), ("\u3000", " "), ("\u0cc6\u0cc2", "\u0cca"), ("①", "1"),
    ("\u0cc6\u0cc2\u0cd5", "\u0ccb"), ("\u00a8", " \u0308"),
)  # fmt: skip
_SPACES = {"remove_extra_whitespaces": False, "normalization_rule_name": "identity"}
_BYTES = {"byte_fallback": True}
# As T5 and NLLB have it (but with fewer rules), as XLNet's kin, Llama and Gemma.
MODELS = {
    "unigram-rules": {"model_type": "unigram", "rules": RULES},
    "bpe-rules": {"model_type": "bpe", "rules": RULES},
    "t5": {
        "model_type": "unigram", "rules": RULES, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1
    },
    "unigram-bytes": {"model_type": "unigram", **_BYTES, **_SPACES},
    "llama": {"model_type": "bpe", **_BYTES, **_SPACES, "split_digits": True},
    "gemma": {
        "model_type": "bpe", **_BYTES, **_SPACES, "add_dummy_prefix": False,
        "user_defined_symbols": ["\n", "\n\n", "▁▁", "▁▁▁", "<table>"],
        "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3,
    },
}  # fmt: skip
TEXTS = [
    "", " ", "   ", "\n", "hello", "good morning, how are you?", "  two before", "two behind  ",
    "a  b   c", "one\ttwo\n\nthree\r\n", "😀 smile 😀😀", "ನಮಸ್ಕಾರ, ಹೇಗಿದ್ದೀರಿ?", "ಶುಭೋದಯ ಧನ್ಯವಾದಗಳು",
    "ಕ\u0cc6\u0cc2 ಕ\u0cc6\u0cc2\u0cd5", "ೊ", "e\u0301 e\u0301\u0323 e\u0323\u0301",
    "ＡＢ Ａ\u0301 ﬁne ① ²",
    "\u0001", "a\u0001b", "\u0001 x", "▁", "▁a ▁ b▁", "<s> </s> <unk> <pad>", "<0x0A> <0x",
    "<table>",
    "漢字かな 한국", "\u00a0no\u3000break", "¨ a ¨", "xqzj XQZJ", "1234567890", "aaaaaaaaaaaaa",
    "          many", "\n\n\n\nlines", "the the the " * 40,
]  # fmt: skip


def train(folder, name, *, vocab_size=500, step=9):
    """Trains a model of the phrasebook, and returns its path."""
    import sentencepiece

    book = load_phrasebook()
    texts = [text for phrase in book.train[::step] for text in (phrase.english, phrase.kannada)]
    options = dict(MODELS[name])
    (folder / "texts").write_text("\n".join(texts), encoding="utf-8")
    if rules := options.pop("rules", None):
        lines = [f"{_codes(source)}\t{_codes(target)}\n" for source, target in rules]
        (folder / "rules").write_text("".join(lines))
        options["normalization_rule_tsv"] = "rules"
    with contextlib.chdir(folder):  # since the model holds the paths
        sentencepiece.SentencePieceTrainer.train(
            input="texts", model_prefix=name, vocab_size=vocab_size, character_coverage=1.0,
            num_threads=1, minloglevel=2, **options,
        )  # fmt: skip
    return folder / f"{name}.model"


def expected(path):
    """What the package makes of the texts, as ids and decoded again, without unknown pieces."""
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    rows = []
    for text in TEXTS:
        ids = model.encode(text)
        known = [token for token in ids if token != model.unk_id()]
        rows.append({"text": text, "ids": ids, "decoded": model.decode(known)})
    return {"pieces": [model.id_to_piece(i) for i in range(len(model))], "texts": rows}


def _codes(text):
    return " ".join(f"{ord(character):04X}" for character in text)


if __name__ == "__main__":
    for name in MODELS:
        with tempfile.TemporaryDirectory() as made:
            path = train(pathlib.Path(made), name)
            (FOLDER / path.name).write_bytes(path.read_bytes())
            text = json.dumps(expected(path), ensure_ascii=True, separators=(",", ":"))
            (FOLDER / f"{name}.json").write_text(text + "\n")
