"""Tiny models of every family, each as transformers' config class takes it.

A variant is there for what it computes differently, or says in another way; a new one is a line in
a table. Golden files (experiments/interop/golden.py) and tests are made for all of them.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from jaxformer.interop import FAMILIES

NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Variant:
    """A tiny model.

    Args:
        model_type: its family.
        class_name: class of transformers.
        fields: arguments of the family's config class.
        older: fields of config.json as an older file has them; `...` is no field.
        surplus: shapes of tensors that older files have, and that are not used.
        bare: whether names of tensors are without the family's prefix, as in files of base models.
    """

    model_type: str
    class_name: str
    fields: Mapping[str, Any]
    older: Mapping[str, Any] = NOTHING
    surplus: Mapping[str, tuple[int, ...]] = NOTHING
    bare: bool = False

    @property
    def kind(self):
        """What it computes, as `Family.classes` says it."""
        return FAMILIES[self.model_type].classes[self.class_name]

    def config(self, values):
        """Content of config.json, from what transformers writes."""
        values = {**values, **self.older}
        return {name: value for name, value in values.items() if value is not ...}

    def tensors(self, shapes):
        """Shapes of the tensors in the file, from those that transformers writes."""
        prefix = FAMILIES[self.model_type].prefix if self.bare else ""
        return {name.removeprefix(prefix): shape for name, shape in shapes.items()} | self.surplus

    def full_name(self, name):
        """Name of a tensor of the file as transformers writes it."""
        heads = ("lm_head.", "embed_out.")
        is_bare = self.bare and not name.startswith(heads)
        return FAMILIES[self.model_type].prefix + name if is_bare else name


def of_family(model_type, class_name, base, variants):
    """Variants by name: the family's name, and what differs from its base."""
    return {
        f"{model_type}-{name}" if name else model_type: Variant(
            model_type, class_name, base | fields, **others
        )
        for name, (fields, others) in variants.items()
    }


def fields(**values):
    """What a variant differs by."""
    return values, {}


def older(config, *, base=NOTHING, **others):
    """A variant whose file an older version has written."""
    return base, {"older": config, **others}
