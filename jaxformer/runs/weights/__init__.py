"""Where the parameters of a run come from: a run folder, a Hugging Face folder, random numbers."""
