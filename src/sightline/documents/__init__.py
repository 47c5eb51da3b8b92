"""From plain documents to probes: pages, what is written on them, fields, questions."""
