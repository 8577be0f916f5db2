"""Cross-entropy losses, as sums instead of means."""
