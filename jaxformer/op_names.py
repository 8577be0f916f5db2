"""What the names that JAX gives to operations, such as "jvp(Decoder)/layers/norm/mul", say."""

import re

_PARTS = [  # the first whose pattern a name has
    (part, re.compile(pattern))
    for part, pattern in (
        ("optimizer", r"\boptimizer\b"),
        ("norms", r"norm\b"),
        ("attention", r"attention|positions\.(rotation|bias|scores)"),
        ("feed-forward", r"feed_forward|experts"),
        ("logits and loss", r"logits|pool|classes|\bloss\b|jvp\((jit\(\w*\))?\)"),
        ("embedding", r"embedding|positions"),
        ("dropout", r"dropout"),
        ("optimizer", r"^jit\((?!.*jvp\()"),  # all else that is not differentiated
    )
]


def part_of(op_name: str) -> str | None:
    """Part of a training step that an operation belongs to; None if unknown."""
    return next((part for part, pattern in _PARTS if pattern.search(op_name)), None)


def is_of_gradient(op_name: str) -> bool:
    """Whether an operation is of a backward pass, which only a training step has."""
    return "transpose(jvp(" in op_name


def is_of_model(op_name: str) -> bool:
    """Whether an operation is of the differentiated loss, and not computed again by remat."""
    # The forward pass is named jvp(...), the backward pass transpose(jvp(...)), and what
    # jax.checkpoint repeats rematted_computation.
    return "jvp(" in op_name and "rematted_computation" not in op_name
