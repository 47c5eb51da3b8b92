"""Does the evidence matter? Variants of a mask (delete, restore) and of an image (occlude, blank, swap, replace)."""
