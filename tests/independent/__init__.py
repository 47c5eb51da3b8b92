"""The same definitions written a second time, in another way, from the published descriptions alone."""
