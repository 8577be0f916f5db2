"""Text to token ids and back: tokenizers, their vocabularies, and chat templates."""
