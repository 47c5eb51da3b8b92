"""Annotation tasks: items, journal, queues, agreement, files, sign-off."""
