"""Data of tasks: read, split, encoded, shown."""
