"""Reading rows: a run as tables (``load_run``), runs made ready to be reported or decided on (``read_source``).

The one layer through which rows are read, under everything that shows or decides something about them. What reads
tables is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sightline.rows.run import Run, load_run
    from sightline.rows.source import Audited, Source, read_source

__all__ = ["Audited", "Run", "Source", "load_run", "read_source"]
_HOMES = {"Run": "run", "load_run": "run", "Audited": "source", "Source": "source", "read_source": "source"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
