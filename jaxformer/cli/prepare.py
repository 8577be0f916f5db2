"""jaxformer prepare."""

import shlex
from collections.abc import Sequence

from jaxformer.cli.commands import Prepare
from jaxformer.cli.overrides import config_path, implied_settings, load_with_start, override_config
from jaxformer.cli.terminal import show

__all__ = ["prepare"]


def prepare(words: Sequence[str]) -> None:
    """Prepares the data of a config with its overrides, and reports the result."""
    path, overrides = config_path(Prepare, words, prog="jaxformer prepare")
    loaded = load_with_start(path, overrides)
    config = override_config(loaded, overrides, prog=f"jaxformer prepare {shlex.quote(path)}")
    from jaxformer import runs

    task = runs.prepare_task(config)
    for line in (*implied_settings(loaded, config, overrides), *task.report):
        show(line)
    summary = task.summary
    show(
        f"{summary.train_tokens:,} tokens for training, {summary.validation_tokens:,} for "
        f"validation; {task.config.model.vocab_size:,} in the vocabulary"
    )
