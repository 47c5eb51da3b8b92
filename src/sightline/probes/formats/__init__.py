"""Annotation formats, one file each. A file registers itself; nothing else lists it."""
