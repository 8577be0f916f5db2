"""Models of other libraries: loading and saving their files."""
