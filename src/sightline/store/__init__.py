"""The run folder: manifest, probes, one parquet file per arm and shard; written atomically, read as data frames.

What reads tables is imported when it is first asked for: whoever only writes whole files needs no Arrow and no pandas.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sightline.store.folder import RunFolder
    from sightline.store.load import Run, load_run

__all__ = ["Run", "RunFolder", "load_run"]
_HOMES = {"RunFolder": "folder", "Run": "load", "load_run": "load"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
