"""How a prefix becomes an answer, one file each. A file registers itself; nothing else lists it."""

from sightline.answering.scorers.base import SCORERS, Launched, Scorer

__all__ = ["SCORERS", "Launched", "Scorer"]
