"""The audit itself: configuration, shards, the one loop over them, rows, and where the loop runs."""
