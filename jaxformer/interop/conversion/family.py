"""A Hugging Face model family: its tables of config fields and of tensors."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from jaxformer.config import ModelConfig
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.fields import FieldTable, Values, as_field
from jaxformer.interop.conversion.layouts import Layout, linear, same

ModelKind = Literal[
    "decoder", "encoder_decoder", "masked", "classifier", "decoder_classifier", "token_classifier",
    "pooled",
]  # fmt: skip
"""Output of a model: logits of next tokens, of masked tokens, or of classes (per row or per
token); or one vector per row."""


def no_values(*_: Any) -> dict[str, Any]:
    """Returns no fields or keys: the default of the functions of a family."""
    return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """Reading and writing of one `model_type`: tables of its config fields and tensors."""

    model_type: str  # in `config.json`
    classes: Mapping[str, ModelKind]  # by class name in `architectures`
    fields: FieldTable  # the fields that are read and written, in this order
    # `{layer}` in a name counts the layers of a stack, `{expert}` the experts of a layer. If a
    # model lacks the parameters of a tensor, such as biases, its file lacks the tensor. Of several
    # layouts, the one whose parameters the model has applies.
    tensors: Mapping[str, Layout | tuple[Layout, ...]]
    # Arguments of every model's `ModelConfig`, unless a field sets them.
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # transformers' defaults of fields, where the table has others.
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Arguments that need more than one field, given those of the table; values of further fields.
    special_read: Callable[[ConfigFields, ModelKind, Values], Values] = no_values
    special_write: Callable[[ModelConfig], dict[str, Any]] = no_values
    prefix: str = ""  # of all names except those of the heads; files of a base model may lack it
    # Names of tied tensors that files may have, with the tensor that each must equal.
    copies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unused: str = ""  # pattern of tensors that files may have, and no model here

    def read(self, fields: ConfigFields, kind: ModelKind) -> Values:
        """Arguments of a `ModelConfig`; ConfigError for a field that is not supported."""
        fields.require_common()
        fields = dataclasses.replace(fields, defaults=self.defaults)
        values = dict(self.fixed)
        for name, entry in self.fields.items():
            values |= as_field(entry).read(fields, name, values)
        values |= self.special_read(fields, kind, values)
        if "classifier" in kind:
            values["num_classes"] = fields.num_classes()
        if kind == "decoder_classifier":
            values |= {"pooling": "last", "output_bias": False}
        return values

    def write(self, model: ModelConfig) -> dict[str, Any]:
        """Fields of a model, except those that all families share."""
        entries = {name: as_field(entry).write for name, entry in self.fields.items()}
        values = {name: write(model) for name, write in entries.items() if write is not None}
        values |= self.special_write(model)
        if model.num_classes is not None:
            values |= label_fields([f"LABEL_{index}" for index in range(model.num_classes)])
        return values

    @property
    def layouts(self) -> list[tuple[str, Layout]]:
        """Names of all tensors, each with every layout that it may have."""
        return [
            (name, layout)
            for name, layouts in self.tensors.items()
            for layout in (layouts if isinstance(layouts, tuple) else (layouts,))
        ]


def decoder_family(
    model_type: str, name: str, *, more: tuple[str, ...] = (), head: str = "ForCausalLM",
    classified: str | None = "", tensors: Mapping[str, Layout | tuple[Layout, ...]],
    **settings: Any,
) -> Family:  # fmt: skip
    """A family of decoders, with their classifier, which reads the last token."""
    classes: dict[str, ModelKind] = dict.fromkeys((name + head, *more), "decoder")
    if classified is not None:  # else transformers has no classifier for it
        classes[f"{classified or name}ForSequenceClassification"] = "decoder_classifier"
        tensors = {**tensors, "score.weight": linear("class_kernel")}
    paths = ("embedding/output_embedding", "embedding/embedding")
    output, table = (
        next(n for n, layout in tensors.items() if layout == same(path)) for path in paths
    )
    return Family(
        model_type=model_type, classes=classes, tensors=tensors, copies={output: table}, **settings
    )  # fmt: skip


def label_fields(names: Sequence[str]) -> dict[str, Any]:
    """Fields that name the classes of a classifier."""
    return {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }
