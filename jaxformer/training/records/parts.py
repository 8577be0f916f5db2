"""Parts of a training step, by the names that JAX gives to operations."""

import re

_PARTS = {  # by the path of JAX's names; the first that fits
    part: re.compile(pattern)
    for part, pattern in {
        "norms": r"norm\b",
        "attention": r"attention|positions\.(rotation|bias|scores)",
        "feed-forward": r"feed_forward|experts",
        "logits and loss": r"logits|pool|classes|\bloss\b|jvp\((jit\(\w*\))?\)",
        "embedding": r"embedding|positions",
        "dropout": r"dropout",
        "optimizer": r"\boptimizer\b|^jit\((?!.*jvp\()",  # or else all that is not differentiated
    }.items()
}


def part_of(op_name: str) -> str | None:
    """Part of a step that an operation belongs to, such as "attention"; None if unknown."""
    return next((part for part, pattern in _PARTS.items() if pattern.search(op_name)), None)
