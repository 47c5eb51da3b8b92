"""Questions with regions: reading annotations, building hard pairs, auditing their wording, locking them.

Nothing here needs torch; ``sightline.probes.images`` needs Pillow and is imported by whoever opens images.
"""

from sightline.probes.annotations import load_regions
from sightline.probes.formats.regions import read_regions, write_regions
from sightline.probes.formats.textocr import read_textocr
from sightline.probes.hard_pairs import HardPairRules, HardPairs, build_hard_pairs
from sightline.probes.lexical_audit import LexicalAudit, audit_negatives
from sightline.probes.probe_file import (
    ProbeSet,
    hash_side,
    lock_probes,
    read_probes,
    split_probes,
    verify_lock,
    write_probes,
)
from sightline.probes.regions import ImageRegions, Ingest, IngestCounts, Word

__all__ = [
    "HardPairRules", "HardPairs", "ImageRegions", "Ingest", "IngestCounts", "LexicalAudit", "ProbeSet", "Word",
    "audit_negatives", "build_hard_pairs", "hash_side", "load_regions", "lock_probes", "read_probes", "read_regions",
    "read_textocr", "split_probes", "verify_lock", "write_probes", "write_regions",
]  # fmt: skip
