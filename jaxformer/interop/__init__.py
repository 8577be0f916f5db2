"""Models of other libraries: loading and saving their files."""

from jaxformer.interop.families import FAMILIES
from jaxformer.interop.huggingface import (
    HuggingFaceFolder,
    HuggingFaceModel,
    load_huggingface,
    open_huggingface,
    save_huggingface,
)
from jaxformer.interop.params_files import load_params, save_params

__all__ = [
    "FAMILIES",
    "HuggingFaceFolder",
    "HuggingFaceModel",
    "load_huggingface",
    "load_params",
    "open_huggingface",
    "save_huggingface",
    "save_params",
]
