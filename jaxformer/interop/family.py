"""A family of models of Hugging Face: its fields, and a table of its tensors."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

from jaxformer.config import ModelConfig
from jaxformer.interop.config_fields import ConfigFields
from jaxformer.interop.layouts import Layout

__all__ = ["Family", "ModelKind"]

ModelKind = Literal[
    "decoder", "encoder_decoder", "masked", "classifier", "decoder_classifier", "token_classifier",
    "pooled",
]  # fmt: skip
"""What is computed: logits of tokens, of masked tokens, of classes of rows or of every token, or
one vector for each row."""


@dataclasses.dataclass(frozen=True)
class Family:
    """How one `model_type` is read and written.

    Args:
        model_type: its name in `config.json`.
        classes: what each class name of `architectures` computes.
        read: makes the arguments of a `ModelConfig` of the fields.
        write: makes the fields of a `ModelConfig`, but for those that all families share.
        tensors: layout by name of the tensor. `{layer}` in a name counts the layers of a stack, and
            `{expert}` the experts of a layer. A tensor whose parameters a model does not have, such
            as biases, is not in its file. Of several layouts the one applies whose parameters the
            model has.
        prefix: of the names of all but the heads; files of a base model may be without.
        ignored: names of tensors that files may have and that are not used, such as constants that
            older versions saved.
        copies: names of tensors that files may have, by the tensors that they must be equal to:
            tables that are tied.
        auto_class: class of transformers that loads such a model.
    """

    model_type: str
    classes: Mapping[str, ModelKind]
    read: Callable[[ConfigFields, ModelKind], dict[str, Any]]
    write: Callable[[ModelConfig], dict[str, Any]]
    tensors: Mapping[str, Layout | tuple[Layout, ...]]
    prefix: str = ""
    ignored: tuple[str, ...] = ()
    copies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    auto_class: str = "AutoModelForCausalLM"
