"""The errors that jaxformer raises for what its users can mend; every one is a ValueError.

Each message says which rule was broken, which value broke it, and what to do instead, so that
the command line can print it as it is. The one warning here is for programs that want to tell it
from others.
"""

__all__ = [
    "CheckpointError",
    "CheckpointWarning",
    "ConfigError",
    "DataError",
    "ShapeError",
    "StorageError",
    "TrainingError",
]


class ConfigError(ValueError):
    """A setting that is missing, misspelt, of the wrong type, or impossible with the others."""


class ShapeError(ValueError):
    """An array argument whose axes, sizes or dtype do not fit the others."""


class DataError(ValueError):
    """A text, file or token that cannot be used as asked."""


class CheckpointError(ValueError):
    """A run folder or checkpoint that is missing, damaged, or of another configuration."""


class CheckpointWarning(UserWarning):
    """A damaged checkpoint that is passed over or set aside, so that another is used."""


class StorageError(ValueError):
    """A file that cannot be written, such as on a full disk."""


class TrainingError(ValueError):
    """A training run that cannot go on, such as one whose loss is no longer finite."""
