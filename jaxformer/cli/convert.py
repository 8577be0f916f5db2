"""jaxformer convert."""

from jaxformer.cli.commands import Convert
from jaxformer.cli.terminal import show

__all__ = ["convert"]


def convert(command: Convert) -> None:
    """Converts between a run and a Hugging Face folder, or writes a file of parameters."""
    from jaxformer import runs

    show(
        runs.convert(
            command.source, command.target, model_type=command.model_type, dtype=command.dtype,
            ignore=command.ignore, **vars(command.reading),
        )
    )  # fmt: skip
