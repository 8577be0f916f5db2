"""Tiny models of every family, each as transformers' config class takes it.

A variant is there for what it computes differently, or says in another way; a new one is a line in
a table. Golden files (experiments/interop/golden.py) and tests are made for all of them.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxformer.interop import FAMILIES


@dataclasses.dataclass(frozen=True)
class Variant:
    """A tiny model."""

    model_type: str
    class_name: str
    fields: Mapping[str, Any]  # arguments of the family's config class
    # Fields of config.json as an older file has them; `...` is no field.
    older: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Unused tensors of older files: their shapes, or the names of those that they are copies of.
    surplus: Mapping[str, tuple[int, ...] | str] = dataclasses.field(default_factory=dict)
    # Shapes of tensors that are used, though transformers does not write them itself.
    extra: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    bare: bool = False  # names of tensors lack the family's prefix, as in files of base models
    # Parts of names of tensors, and what older files have in their place.
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)

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
        named = {self._older_name(name): shape for name, shape in shapes.items()}
        return named | self.extra | self.surplus

    def used(self, shapes):
        """Names of the tensors of a file that are used, by those that transformers writes."""
        heads = tuple(self.extra) + ("lm_head.", "embed_out.")
        prefix = FAMILIES[self.model_type].prefix if self.bare else ""
        names = {}
        for name in shapes.keys() - self.surplus.keys():
            newer = name
            for new, old in self.renamed.items():
                newer = newer.replace(old, new)
            names[newer if newer.startswith(heads) else prefix + newer] = name
        return names

    def _older_name(self, name):
        for new, old in self.renamed.items():
            name = name.replace(new, old)
        return name.removeprefix(FAMILIES[self.model_type].prefix) if self.bare else name


def of_family(model_type, class_name, base, variants):
    """Variants by name: the family's name, and what differs from its base."""
    return {
        f"{model_type}-{name}" if name else model_type: Variant(
            model_type, fields=base | fields, **{"class_name": class_name, **options}
        )
        for name, (fields, options) in variants.items()
    }


def fields(**values):
    """What a variant differs by."""
    return values, {}


def of_class(class_name, **values):
    """A variant of another class than the family's first."""
    return values, {"class_name": class_name}


def older(config=None, *, base=None, **options):
    """A variant whose file an older version has written, or that has other tensors."""
    return base or {}, {"older": config or {}, **options}
