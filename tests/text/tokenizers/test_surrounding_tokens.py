"""Special tokens around a text, by the post-processors that tokenizers have."""

import numpy as np
import pytest
import tokenizers
from tokenizers import models, processors

from jaxformer.text import SurroundingTokens, Tokenizer, TokenRoles

NAMES = ["<s>", "</s>", "a", "b"]
BERT = processors.BertProcessing(("</s>", 1), ("<s>", 0))


def template(single, pair=None):
    return processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[("<s>", 0), ("</s>", 1)]
    )


def tokenizer_with(processor):
    tokenizer = tokenizers.Tokenizer(models.WordLevel({n: i for i, n in enumerate(NAMES)}))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = processor
    return tokenizer


@pytest.mark.parametrize(
    ("processor", "before", "after"),
    [
        (BERT, (0,), (1,)),
        (processors.RobertaProcessing(("</s>", 1), ("<s>", 0)), (0,), (1,)),
        (processors.ByteLevel(), (), ()),
        (template("<s> <s> $A </s>"), (0, 0), (1,)),
        (processors.Sequence([processors.ByteLevel(), template("$A </s>")]), (), (1,)),
    ],
)
def test_tokens_around_a_text_are_those_of_the_library(processor, before, after):
    library = tokenizer_with(processor)
    expected = library.encode("a b").ids
    tokenizer = Tokenizer(library, TokenRoles(surrounded=True))
    special = tokenizer.surrounding_tokens
    assert (special.before, special.after) == (before, after)
    ids = special.around(tokenizer.encode("a b"))
    assert ids.dtype == np.int32 and ids.tolist() == expected
    assert special.size == len(expected) - 2


def test_no_tokens_are_around_a_text_whose_model_reads_none():
    assert Tokenizer(tokenizer_with(BERT)).surrounding_tokens == SurroundingTokens()
