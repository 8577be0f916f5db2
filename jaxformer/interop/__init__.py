"""Models of other libraries: loading and saving their files."""

from jaxformer.interop.families import FAMILIES
from jaxformer.interop.huggingface import HuggingFaceModel, load_huggingface, save_huggingface

__all__ = ["FAMILIES", "HuggingFaceModel", "load_huggingface", "save_huggingface"]
