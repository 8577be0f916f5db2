"""A Hugging Face model family: its config fields and its table of tensors."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

from jaxformer.config import ModelConfig
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.layouts import Layout

__all__ = ["Family", "ModelKind"]

ModelKind = Literal[
    "decoder", "encoder_decoder", "masked", "classifier", "decoder_classifier", "token_classifier",
    "pooled",
]  # fmt: skip
"""Output of a model: logits of next tokens, of masked tokens, or of classes (per row or per
token); or one vector per row."""


@dataclasses.dataclass(frozen=True)
class Family:
    """How to read and write one `model_type`.

    Args:
        model_type: its name in `config.json`.
        classes: kind of model by class name in `architectures`.
        read: converts the fields to the arguments of a `ModelConfig`.
        write: converts a `ModelConfig` to the fields, except those that all families share.
        tensors: layout by name of the tensor. `{layer}` in a name counts the layers of a stack, and
            `{expert}` the experts of a layer. If a model lacks the parameters of a tensor, such as
            biases, its file lacks the tensor. Of several layouts, the one whose parameters the
            model has applies.
        prefix: prefix of all names except those of the heads; files of a base model may lack it.
        ignored: names of unused tensors that files may have, such as constants saved by older
            versions.
        copies: names of tied tensors that files may have, with the tensor that each must equal.
        auto_class: class of transformers that loads the model.
        note: explanation for users who export a model without having chosen this family.
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
    note: str = ""

    @property
    def layouts(self) -> list[tuple[str, Layout]]:
        """Names of all tensors, each with every layout that it may have."""
        return [
            (name, layout)
            for name, layouts in self.tensors.items()
            for layout in (layouts if isinstance(layouts, tuple) else (layouts,))
        ]
