"""The run folder: manifest, probes, one parquet file per arm and shard, each written whole or not at all.

What reads tables is imported when it is first asked for: whoever only writes whole files needs no Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sightline.store.folder import RunFolder

__all__ = ["RunFolder"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sightline.store.folder import RunFolder

    return RunFolder
