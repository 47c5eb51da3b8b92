"""Where things lie: paths on this machine, and URLs of object stores, under the same few verbs."""

from sightline.places.listing import (
    Listing,
    Place,
    StoreError,
    is_remote,
    open_file,
    open_lines,
    open_ranges,
    place,
    read_text,
    read_whole,
    told_of,
)

__all__ = [
    "Listing",
    "Place",
    "StoreError",
    "is_remote",
    "open_file",
    "open_lines",
    "open_ranges",
    "place",
    "read_text",
    "read_whole",
    "told_of",
]
