"""Special tokens around a text, by the post-processors that tokenizers have."""

import numpy as np
import pytest
import tokenizers
from tokenizers import models, processors

from jaxformer.errors import DataError
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


@pytest.mark.parametrize(
    "processor",
    [
        BERT,
        processors.RobertaProcessing(("</s>", 1), ("<s>", 0)),
        template("<s> $A </s>", "<s> $A </s> $B:1 </s>:1"),
        template("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
        template("$A </s>", "$A <s> $B:2 </s>:2"),
        processors.Sequence([processors.ByteLevel(), template("<s> $A", "<s> $A </s> $B")]),
        template("<s> $A </s>", "<s> $B </s> $A </s>"),
        template("<s> $A </s>", "<s> $A $B </s>"),
        template("<s> $A </s>", "<s> $A </s>:1 $B:1 </s>:1"),  # a type that begins elsewhere
        template("<s> $A </s>", "$A </s> $B </s>"),
        template("<s> $A </s>", "<s> $A </s> $B"),
    ],
)
def test_tokens_and_types_of_a_pair_are_those_of_the_library(processor):
    library = tokenizer_with(processor)
    expected = library.encode("a b a", "b b")
    tokenizer = Tokenizer(library, TokenRoles(surrounded=True))
    ids, types = tokenizer.encode_pair("a b a", "b b")
    assert (ids.tolist(), types.tolist()) == (expected.ids, expected.type_ids)
    assert ids.dtype == types.dtype == np.int32


def test_two_texts_need_a_template_of_their_own():
    library = tokenizer_with(template("<s> $A </s>"))
    for roles in (TokenRoles(surrounded=True), TokenRoles()):
        with pytest.raises(DataError, match="got none; use the tokenizer.json of a model"):
            Tokenizer(library, roles).encode_pair("a", "b")
