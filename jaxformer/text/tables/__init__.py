"""Rows of text, such as pairs and conversations: reading, splitting, and encoding them."""
