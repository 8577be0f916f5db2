"""jaxformer convert."""

from jaxformer.cli.commands import Convert
from jaxformer.cli.terminal import show

__all__ = ["convert"]


def convert(command: Convert) -> None:
    """Converts between a run and a folder of Hugging Face, or writes a file of parameters."""
    from jaxformer import runs

    show(
        runs.convert(
            command.source, command.target, step=command.step, model_type=command.model_type,
            dtype=command.dtype, ignore=command.ignore, source_language=command.source_language,
            target_language=command.target_language, base=command.base,
        )
    )  # fmt: skip
