"""Image ids that a new probe set must not touch, for sets that are disjoint by image."""

from __future__ import annotations

from pathlib import Path

from sightline.errors import SightlineError
from sightline.probes.json_lines import open_text, read_objects


def read_image_ids(path: str | Path) -> frozenset[str]:
    """The image ids of a probe file or region file, or of a plain list with one id per line."""
    with open_text(path) as stream:
        lines = [line.strip() for line in stream if line.strip()]
    if lines and not lines[0].startswith("{"):
        return frozenset(lines)
    found = set()
    for number, row in read_objects(path):
        if "image_id" in row:
            found.add(str(row["image_id"]))
        elif number > 1:
            raise SightlineError(f"{path} line {number}: no image_id")
    if not found:
        raise SightlineError(f"{path}: holds no image ids")
    return frozenset(found)
