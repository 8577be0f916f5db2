"""Tokenizers of Hugging Face folders, from each of the file formats that they have."""
