"""jaxformer prepare."""

from collections.abc import Sequence

from jaxformer.cli.overrides import override_config
from jaxformer.cli.terminal import show
from jaxformer.config import load_config

__all__ = ["prepare"]


def prepare(path: str, overrides: Sequence[str]) -> None:
    """Prepares the data of a config with its overrides, and says what became of it."""
    config = override_config(load_config(path), overrides, prog=f"jaxformer prepare {path}")
    from jaxformer import runs

    task = runs.prepare_task(config)
    for line in task.report:
        show(line)
    summary = task.summary
    show(
        f"{summary.train_tokens:,} tokens for training, {summary.validation_tokens:,} for "
        f"validation; {task.config.model.vocab_size:,} in the vocabulary"
    )
