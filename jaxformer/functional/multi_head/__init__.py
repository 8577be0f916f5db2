"""The multi-head attention layer, its key/value caches, and attention functions of one's own."""
