"""What texts are read with: special tokens as text."""

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from jaxformer.text import Tokenizer, TokenRoles


def unigram():
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁", -1.0), *((c, -2.0) for c in "</s>abé")]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken("</s>"), AddedToken("<unk>")])
    return Tokenizer(tokenizer)


def test_spelling_of_a_special_token_in_a_unigram_vocabulary_is_text():
    tokenizer = unigram()
    ids = tokenizer.encode("a</s>b").tolist()
    assert tokenizer.special_id("</s>") == 1
    assert tokenizer.token_texts(ids) == [" ", "a", "<", "/", "s", ">", "b"]


def test_name_of_the_end_of_text_among_words_is_text():
    library = tokenizers.Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "</s>": 2}, "<unk>"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = Tokenizer(library, TokenRoles(end_of_text="</s>"))
    assert (tokenizer.end_of_text, tokenizer.encode("a </s> a").tolist()) == (2, [1, 0, 1])
