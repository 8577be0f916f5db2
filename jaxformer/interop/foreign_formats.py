"""Recognizes models in formats that jaxformer does not open, and says what to do with them."""

import pathlib

ADAPTER_CONFIG = "adapter_config.json"
_GGUF = "a GGUF file, as llama.cpp uses; pass the model's original folder, with safetensors files"
_KERAS = "a Keras model; copy its weights to the parameters of a model in Python"
_REMEDIES = {
    "*.gguf": _GGUF,
    "*.keras": _KERAS,
    "*.h5": _KERAS,
    "saved_model.pb": "a SavedModel of TensorFlow; export its weights with the program that wrote "
    "it",
    "_CHECKPOINT_METADATA": "a checkpoint of Orbax, which has no config and no tokenizer; restore "
    "it with orbax.checkpoint, and pass the parameters to a model in Python",
}


def foreign_format(path: pathlib.Path) -> str | None:
    """Content of a file or folder, and the remedy; None for formats that are not known."""
    for pattern, remedy in _REMEDIES.items():
        if path.match(pattern) or (path.is_dir() and any(path.glob(pattern))):
            return remedy
    return None
