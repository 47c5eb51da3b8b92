"""What pruning costs, measured: selection alone, and the whole path by stage."""
