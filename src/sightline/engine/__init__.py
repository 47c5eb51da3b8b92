"""Where and how the work runs: batches under a token budget, work on the host beside work on the device."""
