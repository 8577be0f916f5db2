"""What training and plans say about the attention implementations of a program."""

from collections.abc import Sequence

from jaxformer.functional.attention.program import Choice
from jaxformer.functional.platforms import default_platform


def describe_choices(choices: Sequence[Choice]) -> list[str]:
    """Each implementation in use, and why no fused kernel is, for the default platform.

    Example:
        >>> describe_choices([Choice("chunked", {"cudnn": "it has no soft cap"})] * 2)
        ['chunked (a CPU has no fused kernel)']
    """
    platform = default_platform()
    kernel = {"cuda": "cudnn", "tpu": "splash"}.get(platform)
    lines = []
    for name, declined in choices:
        if name in ("cudnn", "splash"):
            lines.append(f"{name}, a fused kernel")
        elif not declined:
            lines.append(f"{name}, as it was asked for")
        elif kernel is None:
            lines.append(f"{name} (a {platform.upper()} has no fused kernel)")
        else:
            lines.append(f"{name}, not the fused kernel {kernel}: {declined[kernel]}")
    return list(dict.fromkeys(lines))
