"""Synthetic text-rich scenes: receipts, forms, signs, tables, screens, pages; drawn from a seed, with word boxes."""
