"""Cross-entropy losses, as sums instead of means."""

from jaxformer.functional.losses.chunked import chunked_cross_entropy
from jaxformer.functional.losses.cross_entropy import cross_entropy

__all__ = ["chunked_cross_entropy", "cross_entropy"]
