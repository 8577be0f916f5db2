"""Special tokens around a text, by the post-processors that tokenizers have."""

import pytest
import tokenizers
from tokenizers import models, processors

from jaxformer.errors import DataError
from jaxformer.text import Tokenizer
from jaxformer.text.framing import Frame, frame_of

NAMES = ["<s>", "</s>", "a", "b"]
BERT = processors.BertProcessing(("</s>", 1), ("<s>", 0))


def template(single):
    return processors.TemplateProcessing(single=single, special_tokens=[("<s>", 0), ("</s>", 1)])


def tokenizer_with(processor):
    tokenizer = tokenizers.Tokenizer(models.WordLevel({n: i for i, n in enumerate(NAMES)}))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = processor
    return tokenizer


@pytest.mark.parametrize(
    ("processor", "frame"),
    [
        (BERT, Frame([0], [1])),
        (processors.RobertaProcessing(("</s>", 1), ("<s>", 0)), Frame([0], [1])),
        (processors.ByteLevel(), Frame([], [])),
        (template("<s> <s> $A </s>"), Frame([0, 0], [1])),
        (processors.Sequence([processors.ByteLevel(), template("$A </s>")]), Frame([], [1])),
    ],
)
def test_tokens_around_a_text_are_those_of_the_library(processor, frame):
    tokenizer = tokenizer_with(processor)
    assert frame_of(tokenizer) == frame
    expected = tokenizer.encode("a b").ids
    assert Tokenizer(tokenizer).encode_framed("a b").tolist() == expected


def test_template_without_the_text_is_refused():
    with pytest.raises(DataError, match="must have the text once, got 2 times"):
        frame_of(tokenizer_with(template("$A </s> $A")))
    both = processors.Sequence([template("$A </s>"), template("<s> $A <s>")])
    with pytest.raises(DataError, match="one post-processor puts .* got 2 that do"):
        frame_of(tokenizer_with(both))
