"""Text models: a model with its tokenizers, and what you can do with the two."""
