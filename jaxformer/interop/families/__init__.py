"""Model families: one file each, with its config fields and the names of its tensors."""
