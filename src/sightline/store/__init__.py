"""The run folder: manifest, probes, one parquet file per arm and shard; written atomically, read as data frames."""

from sightline.store.folder import RunFolder
from sightline.store.load import Run, load_run

__all__ = ["Run", "RunFolder", "load_run"]
