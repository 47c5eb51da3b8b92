"""Annotation formats, one file each. A file registers itself; nothing else lists it."""

from sightline.probes.formats.base import FORMATS, Format, FormatOption

__all__ = ["FORMATS", "Format", "FormatOption"]
