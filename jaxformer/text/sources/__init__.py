"""Documents and tokens from files of any size: reading, splitting, and encoding them."""
