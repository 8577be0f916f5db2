"""Tasks: the data that a run trains a text model on."""
