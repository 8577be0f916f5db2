"""Files of a run folder, and what verifies them."""
