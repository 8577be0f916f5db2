"""Loading and saving of Hugging Face models, and of parameters as safetensors files."""

from jaxformer.interop.adapters import Adapter, load_adapter, save_adapter
from jaxformer.interop.chat_templates import HuggingFaceChatTemplate, load_chat_template
from jaxformer.interop.families.registry import FAMILIES
from jaxformer.interop.generation_config import SpecialTokens
from jaxformer.interop.huggingface import HuggingFaceModel, load_huggingface, save_huggingface
from jaxformer.interop.model_folders import HuggingFaceFolder, open_huggingface
from jaxformer.interop.params_files import load_params, save_params
from jaxformer.interop.tokenizers.loading import Tokenizers, load_tokenizers

__all__ = [
    "FAMILIES",
    "Adapter",
    "HuggingFaceChatTemplate",
    "HuggingFaceFolder",
    "HuggingFaceModel",
    "SpecialTokens",
    "Tokenizers",
    "load_adapter",
    "load_chat_template",
    "load_huggingface",
    "load_params",
    "load_tokenizers",
    "open_huggingface",
    "save_adapter",
    "save_huggingface",
    "save_params",
]
