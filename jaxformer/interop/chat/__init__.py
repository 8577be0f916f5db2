"""Chat templates of Hugging Face folders."""
