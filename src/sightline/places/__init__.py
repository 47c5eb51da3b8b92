"""Where things lie: paths on this machine, and URLs of object stores, under the same few verbs."""

from sightline.places.addresses import Place, is_remote, place
from sightline.places.listing import Listing
from sightline.places.objects import open_file, open_lines, open_ranges, read_text, read_whole
from sightline.places.store_errors import StoreError, told_of

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
