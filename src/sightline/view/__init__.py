"""A viewer of runs that is kept open: overview, rows, cases, comparison; it only ever reads."""
