"""How a benchmark wants to be shown, as data: columns of its tables and its chart. Cards and pages draw from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Unit = Literal["text", "count", "score", "number", "percent", "ratio"]


@dataclass(frozen=True)
class Quantity:
    """One column: where its values are in a card's records, what stands above them and how they are printed."""

    key: str
    """Also the heading on a card."""
    title: str = ""
    """The heading on a page."""
    unit: Unit = "text"
    interval: bool = False
    """Whether the page prints the 10th and 90th percentile with the value."""
    help: str = ""
    """One sentence for the page."""
    card: bool = True
    page: bool = True


@dataclass(frozen=True)
class FurtherTable:
    """A table beside the one that has a line per measured point: what follows from those lines."""

    name: str
    """Behind the name of the first table, as the stem of its files."""
    title: str
    caption: str
    columns: Sequence[Quantity]
    lines: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class StageBars:
    """A bar per line, made of its stages."""

    title: str
    whole: tuple[str, ...] = ()
    """Entries of the timer that are no stage on the way: the total, and what comes behind it."""


@dataclass(frozen=True)
class BatchCurves:
    """Curves over the batch size, one panel per quantity, for lines that were measured at several."""

    quantities: tuple[tuple[str, str], ...] = (("samples_per_s", "Samples/s"), ("speedup", "Speed-up"))
    """Keys of records and what stands beside the axis."""


Chart = StageBars | BatchCurves

KEPT = Quantity("kept_tokens", "K", "count", help="Visual tokens kept.")
SPREAD = Quantity("spread", page=False)
SPEEDUP = Quantity("speedup", "Speed-up", "ratio")
ESTIMATED = Quantity("estimated_gflop", "Est. GFLOP", "number", help="Estimated from shapes, not measured.", card=False)
OF_CEILING = Quantity(
    "of_ceiling", "Of ceiling", "percent", help="Estimated operations over measured time, over the ceiling."
)
PEAK = Quantity("allocated_peak_gib", unit="number", page=False)
MEMORY = Quantity("incremental_gib", "GiB", "number", help="Allocated peak above what the model holds at rest.")
SET_UP = Quantity("setup_s", "Set-up, s", "number", help="Compiling and capturing, outside every other time.")

OVER_BATCHES = (
    Quantity("batch", "Batch", "count"),
    replace(KEPT, card=False),
    Quantity("length", "Length", "count", help="Positions per sequence that the language layers read."),
    Quantity("ms", "ms", "number", interval=True, help="Per batch; median, 10th and 90th percentile."),
    SPREAD,
    Quantity("samples_per_s", "Samples/s", "number"),
    Quantity("tflops", unit="number", page=False),
    ESTIMATED,
    OF_CEILING,
    SPEEDUP,
    PEAK,
    MEMORY,
    Quantity("memory_saved", "Memory saved", "percent", help="Of the full prefix's GiB, under the same conditions."),
    SET_UP,
)
"""For whatever is measured per batch and against the full prefix; columns without values are left out of a page."""
