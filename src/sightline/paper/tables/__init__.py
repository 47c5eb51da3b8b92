"""The tables of the paper, one file each. A file registers itself; nothing else lists it."""
