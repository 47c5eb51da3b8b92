"""The clocks of the benchmarks: what they run and time. Apart from their descriptions, so that those need no torch."""
