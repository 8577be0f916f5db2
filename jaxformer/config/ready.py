"""The configs that come with the package."""

import pathlib

from jaxformer.config.checks import suggestion

__all__ = ["ready_configs", "ready_hint"]

# In a checkout configs/ lies beside the package; a wheel has it inside.
_FOLDERS = tuple(folder / "configs" for folder in pathlib.Path(__file__).parents[1:3])


def ready_configs() -> dict[str, pathlib.Path]:
    """Files of the configs that come with the package, by the names that `load_config` takes.

    Example:
        >>> list(ready_configs())[:3]
        ['gpt2_124m', 'masked_python', 'multi30k']
    """
    files = next((files for folder in _FOLDERS if (files := sorted(folder.glob("*.toml")))), [])
    return {file.stem: file for file in files}


def ready_hint(name: str) -> str:
    """End of a message on an unknown name: the built-in configs, and the most similar one."""
    ready = ready_configs()
    return f"; the built-in ones are {', '.join(ready)}{suggestion(name, ready)}"
