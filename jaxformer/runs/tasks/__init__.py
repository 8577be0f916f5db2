"""Tasks: what a run trains, and what its model can do."""
