"""Errors that users can fix.

Each message states the rule, the value that broke it, and the remedy; the command line prints it as
it is. The one warning here has its own class so that programs can filter it.
"""

__all__ = [
    "CheckpointError",
    "CheckpointWarning",
    "ConfigError",
    "DataError",
    "JaxformerError",
    "ShapeError",
    "TrainingError",
]


class JaxformerError(ValueError):
    """What a user can fix; the other errors are its kinds."""


class ConfigError(JaxformerError):
    """A setting that is missing, misspelt, of the wrong type, or in conflict with others."""


class ShapeError(JaxformerError):
    """An array argument whose axes, sizes or dtype do not fit the others."""


class DataError(JaxformerError):
    """A text, file or token that cannot be used as requested."""


class CheckpointError(JaxformerError):
    """A run folder or checkpoint that is missing, damaged, or has a different configuration."""


class CheckpointWarning(UserWarning):
    """A damaged checkpoint that is skipped or moved aside in favour of another."""


class TrainingError(JaxformerError):
    """A training run that cannot continue, for example because its loss is no longer finite."""


def first_line(reason: object) -> str:
    """First line of an error's text, or the name of its class, for the message of another error."""
    return (str(reason).strip().splitlines() or [type(reason).__name__])[0]


def reason_of(error: OSError) -> str:
    """What an error of the system or of a bucket says, in one line."""
    if isinstance(error, FileNotFoundError) and error.strerror is None:
        return "there is no such file"
    return error.strerror or first_line(error)
