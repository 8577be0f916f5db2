"""Named arrays of unequal lengths in files: written in shards, read in memory or mapped."""
